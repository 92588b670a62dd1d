-- DELIFEQ as Valkey has it, for servers that do not: deletes the key if that is its value, so that a lock is given back
-- only by who holds it.
-- KEYS: the key
-- ARGV: the value, and optionally "try": use the server's own command if it has it after all
-- Reply: 1 if it was deleted, 0 if there is none or it has another value
-- Complexity: O(1)

if ARGV[2] == 'try' then
    -- Redis 7 raises an error of a command that it does not have, and tells whether the user may use it; before, an error
    -- without a code of its own, or behind the place where it was called, says that there is none.
    local look = redis.acl_check_cmd
    local has = not look or pcall(look, 'DELIFEQ', KEYS[1], ARGV[1])
    local reply = has and redis.pcall('DELIFEQ', KEYS[1], ARGV[1])
    local lacks = not look and type(reply) == 'table' and reply.err and
        (string.find(reply.err, '^ERR ') or string.find(reply.err, '^@'))
    if has and not lacks then
        return reply
    end
end

-- Caught and returned, an error reads the same from every version of Redis.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
    return value
end
if value ~= ARGV[1] then
    return 0
end
return redis.call('DEL', KEYS[1])
