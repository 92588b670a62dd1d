-- Releases a lock that is a string, or several strings with one token, for an owner that is gone: deletes those that
-- hold the token, and leaves alone what others have, or is of another type.
-- KEYS: the lock's keys
-- ARGV: token
-- Reply: how many were deleted
-- Complexity: O(keys), and the length of their values
local owned = {}
for _, key in ipairs(KEYS) do
    -- Caught and returned, an error reads the same from every version of Redis.
    local value = redis.pcall('GET', key)
    if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
        return value
    elseif value == ARGV[1] then
        owned[#owned + 1] = key
    end
end

local deleted = 0
for _, key in ipairs(owned) do
    deleted = deleted + redis.call('DEL', key)
end
return deleted
