-- Writes something of a lock that is a string, or several strings with one token, that leaves it as it is: for who wants
-- to know which replicas have it. It proves first that the token owns it, and gives no longer time to live.
-- KEYS: the lock's keys
-- ARGV: token
-- Reply: 1 if it has written, else 0: a key is gone, another's, or of another type
-- Complexity: O(keys), and the length of their values
for _, key in ipairs(KEYS) do
    -- Caught and returned, an error reads the same from every version of Redis.
    local value = redis.pcall('GET', key)
    if type(value) == 'table' then
        return string.sub(value.err, 1, 9) == 'WRONGTYPE' and 0 or value
    elseif value ~= ARGV[1] then
        return 0
    end
end

local life = redis.call('PTTL', KEYS[1])
-- PEXPIRE with less than 1 would delete the key.
if life > 0 then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
    return 1
elseif life == -1 then
    redis.call('SET', KEYS[1], ARGV[1])
    return 1
end
return 0
