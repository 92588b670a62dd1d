-- Renews a lock that is a string, or several strings with one token. It proves first that the token still owns each of
-- them, never creates a key, never shortens a time to live, and defers to an owner that renews by itself.
-- Several keys are one lock: it is worth what its worst key is, and lasts as long as its shortest. So nothing is
-- renewed unless all are owned and none is shorter than expected; if any is as expected, then all get the lease.
-- KEYS: the lock's keys
-- ARGV: token, lease in ms (1: it is only looked at), expected in ms (what the time to live ought to be now if nobody touched it;
--       below 0: it ought to be over), slack in ms (by how much it may differ from that either way)
-- Reply: {code, PTTL}, of several keys the lowest code and the shortest PTTL of those that have it
--         1: renewed: it has the lease, or more
--         2: deferred: its time to live is longer than expected
--         0: gone: there is no such key
--        -1: another owner has it
--        -2: it has no time to live: somebody made it persistent
--        -3: its time to live is shorter than expected: somebody shortened it
--        -4: it is of another type
-- Complexity: O(keys), and the length of their values
local token = ARGV[1]

local function whole(text, least)
    local number = tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number % 1 == 0 and number
end

-- PEXPIRE with less than 1 would delete the key.
local lease, expected, slack = whole(ARGV[2], 1), whole(ARGV[3], -2 ^ 53), whole(ARGV[4], 0)
if not (KEYS[1] and lease and expected and slack) then
    return redis.error_reply('HEADGATE no key, or lease, expected or slack out of range')
end

local lives, lowest, shortest = {}, 2, math.huge
for i, key in ipairs(KEYS) do
    -- Caught and returned, an error reads the same from every version of Redis.
    local value = redis.pcall('GET', key)
    local life = redis.call('PTTL', key)
    local code = 1
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
        code = -2
    elseif life < expected - slack then
        code = -3
    elseif life > expected + slack then
        code = 2
    end
    if code < lowest or (code == lowest and life < shortest) then
        lowest, shortest = code, life
    end
    lives[i] = life
end
if lowest ~= 1 then
    return {lowest, shortest}
end

for i, key in ipairs(KEYS) do
    if lease > 1 and lives[i] < lease then
        redis.call('PEXPIRE', key, string.format('%.0f', lease))
    end
end
return {1, lease > 1 and math.max(shortest, lease) or shortest}
