-- Gives a time to live to a lock, of one key or several with one token, that was taken without one (SETNX, MSETNX) and
-- would stay for ever if its owner died. It proves first that the token owns the key, never creates a key, and leaves a
-- time to live that is there as it is. Of several keys each is healed that the token owns, whatever became of the others.
-- KEYS: the lock's keys
-- ARGV: token, time to live in ms (1 or more)
-- Reply: {code, PTTL}, of several keys the lowest code and the shortest PTTL
--         1: healed: it has the time to live
--         2: deferred: it has one already
--         0: gone: there is no such key
--        -1: another owner has it
--        -4: it is of another type
-- Complexity: O(keys), and the length of their values
local token, ttl = ARGV[1], tonumber(ARGV[2])

-- PEXPIRE with less than 1 would delete the key.
if not (KEYS[1] and ttl and ttl >= 1 and ttl <= 2 ^ 53 and ttl % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or time to live out of range')
end

local lowest, shortest, endless = 2, math.huge, {}
for _, key in ipairs(KEYS) do
    -- Caught and returned, an error reads the same from every version of Redis.
    local value = redis.pcall('GET', key)
    local life = redis.call('PTTL', key)
    local code = 2
    if type(value) == 'table' then
        if string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
            return value
        end
        code = -4
    elseif not value then
        code = 0
    elseif value ~= token then
        code = -1
    elseif life < 0 then
        code, life, endless[#endless + 1] = 1, ttl, key
    end
    lowest, shortest = math.min(lowest, code), math.min(shortest, life)
end
for _, key in ipairs(endless) do
    redis.call('PEXPIRE', key, string.format('%.0f', ttl))
end
return {lowest, shortest}
