-- The events of the last hour with any, as lua/event_log.lua and other writers of the pattern have counted them. Reads only.
-- KEYS: the sorted set common:<name>:<severity>
-- ARGV: how many at most (1 or more)
-- Reply: {message, count, message, count, …}, the most frequent first; "unknown" is a count that is no whole number
-- Complexity: O(log M + N) where M is the messages that are there and N those given
local most = tonumber(ARGV[1])
if not (KEYS[1] and most and most >= 1 and most % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or number of events out of range')
end
local found = redis.pcall('ZREVRANGE', KEYS[1], 0, most - 1, 'WITHSCORES')
for i = 2, #found, 2 do
    found[i] = string.find(found[i], '^%d+$') and found[i] or 'unknown'
end
return found
