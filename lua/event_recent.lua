-- The events that lua/event_log.lua and other writers of the pattern have logged last. Reads only.
-- KEYS: the list recent:<name>:<severity>
-- ARGV: how many at most (1 or more)
-- Reply: {line, line, …}, newest first
-- Complexity: O(N) where N is the lines given
local most = tonumber(ARGV[1])
if not (KEYS[1] and most and most >= 1 and most % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or number of events out of range')
end
return redis.pcall('LRANGE', KEYS[1], 0, most - 1)
