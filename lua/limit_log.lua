-- A sliding window, exactly: a sorted set with one member for each permit that was granted.
-- A granted permit may be spent until a hold from now. Its score is that last moment, not the first, so that permits
-- that are spent late are never more than the limit in any window either.
-- The time is Redis' own, which all that share the limit have in common. A number holds its microseconds exactly.
-- KEYS: the limit
-- ARGV: limit, window in µs, cost (permits wanted), least (the fewest that will do, 1 to cost), hold in µs (0 to
--       window; 0: spent at once), id (a text that no other call for this limit has)
-- Reply: {granted, wait}: the most permits from least to cost that there are, and 0; or 0, and in how many µs least of
--        them will be granted, -1: never, as they are more than the limit
-- Complexity: O((granted + expired + 1) * log(limit))
local key = KEYS[1]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local least, hold, id = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

if least > limit then
    return {0, -1}
end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local last = now + hold

-- Lua passes on only a few thousand arguments in one call.
local at_once = 1000

local function put(members)
    for first = 1, #members, at_once do
        local arguments = {}
        for i = first, math.min(first + at_once - 1, #members) do
            arguments[#arguments + 1] = last
            arguments[#arguments + 1] = members[i]
        end
        redis.call('ZADD', key, unpack(arguments))
    end
end

-- Caught and returned, an error reads the same from every version of Redis.
local expired = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', now - window)
if type(expired) == 'table' then
    return expired
end

-- Others may hold longer, but not by more than a window: what lies beyond was recorded before the clock was set back.
-- It is taken for new. So a clock that jumps neither forgets a permit nor keeps it for more than a window too long.
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
local latest = math.max(last, tonumber(newest[2]) or last)
if latest > last + window then
    put(redis.call('ZRANGEBYSCORE', key, last, '+inf'))
    latest = last
end

local used = redis.call('ZCARD', key)
local granted = math.min(cost, limit - used)
if granted < least then
    local over = used + least - limit
    local leaves = redis.call('ZRANGE', key, over - 1, over - 1, 'WITHSCORES')
    return {0, leaves[2] + window - now}
end

local members = {}
for i = 1, granted do
    members[i] = id .. ':' .. i
end
put(members)
redis.call('PEXPIRE', key, string.format('%.0f', math.ceil((latest + window - now) / 1000) + 1000))
return {granted, 0}
