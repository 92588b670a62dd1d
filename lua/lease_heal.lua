-- Gives a time to live to a lock that was taken without one (SETNX) and would stay for ever if its owner died. It
-- proves first that the token owns it, never creates a key, and leaves a time to live that is there as it is.
-- KEYS: the lock
-- ARGV: token, time to live in ms (1 or more)
-- Reply: {code, PTTL}
--         1: healed: it has the time to live
--         2: deferred: it has one already
--         0: gone: there is no such key
--        -1: another owner has it
--        -4: it is of another type
-- Complexity: O(1), and the length of the value
local key, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- PEXPIRE with less than 1 would delete the key.
if not (key and ttl and ttl >= 1 and ttl <= 2 ^ 53 and ttl % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or time to live out of range')
end

-- Caught and returned, an error reads the same from every version of Redis.
local value = redis.pcall('GET', key)
local life = redis.call('PTTL', key)
if type(value) == 'table' then
    return string.sub(value.err, 1, 9) == 'WRONGTYPE' and {-4, life} or value
elseif not value then
    return {0, life}
elseif value ~= token then
    return {-1, life}
elseif life >= 0 then
    return {2, life}
end
redis.call('PEXPIRE', key, string.format('%.0f', ttl))
return {1, ttl}
