-- DELIFEQ as Valkey has it, for servers that do not: deletes the key if that is its value, so that a lock is given back
-- only by who holds it.
-- KEYS: the key
-- ARGV: the value, and optionally "try": use the server's own command if it has it after all
-- Reply: 1 if it was deleted, 0 if there is none or it has another value
-- Complexity: O(1)

if ARGV[2] == 'try' then
    local reply = redis.pcall('DELIFEQ', KEYS[1], ARGV[1])
    -- Without a code of its own, or behind the place where it was called (before Redis 7): there is no such command.
    if type(reply) == 'number' or not (string.find(reply.err, '^ERR ') or string.find(reply.err, '^@')) then
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
