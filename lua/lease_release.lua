-- Releases a lock that is a string, or several strings with one token, for an owner that is gone: deletes those that
-- hold the token, and leaves alone what others have, or is of another type. The owner may have come back just before: if
-- any of its keys lives longer than it left it with, or for ever, somebody has extended the lock, and nothing is deleted.
-- KEYS: the lock's keys
-- ARGV: token, most in ms (no longer than this it lives if nobody has touched it; without it: as long as it likes)
-- Reply: how many were deleted
-- Complexity: O(keys), and the length of their values
local token, most = ARGV[1], tonumber(ARGV[2])
local owned = {}
for _, key in ipairs(KEYS) do
    -- Caught and returned, an error reads the same from every version of Redis.
    local value = redis.pcall('GET', key)
    if type(value) == 'table' and string.sub(value.err, 1, 9) ~= 'WRONGTYPE' then
        return value
    elseif value == token then
        local life = redis.call('PTTL', key)
        if most and (life < 0 or life > most) then
            return 0
        end
        owned[#owned + 1] = key
    end
end

local deleted = 0
for _, key in ipairs(owned) do
    deleted = deleted + redis.call('DEL', key)
end
return deleted
