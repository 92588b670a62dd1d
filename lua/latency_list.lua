-- Notes which interfaces there are, so that a report over all of them need not know their names: a sorted set of names
-- by the Redis time in seconds at which a sidecar named them last. Those that nobody has named for long are taken off.
-- Those that were named at a time to come were so before the clock was set back: that is now.
-- KEYS: the sorted set
-- ARGV: for how many seconds a name is kept (1 or more), then the names
-- Reply: how many names there are now; an error that names the key where another type is in the way
-- Complexity: O(N log M) where N is the names given and M those that are there
local keep = tonumber(ARGV[1])
if not (KEYS[1] and keep and keep >= 1 and keep % 1 == 0) then
    return redis.error_reply('HEADGATE the arguments of a list of interfaces are not sound')
end

local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'zset' then
    return redis.error_reply('HEADGATE key ' .. KEYS[1] .. ' holds a ' .. found .. ', nothing was written')
end

local now = tonumber(redis.call('TIME')[1])
for i = 2, #ARGV do
    -- Caught and returned, an error reads the same from every version of Redis.
    local written = redis.pcall('ZADD', KEYS[1], now, ARGV[i])
    if type(written) == 'table' and written.err then
        return written
    end
end
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if newest[2] and tonumber(newest[2]) > now then
    newest = redis.call('ZREVRANGE', KEYS[1], 0, -1, 'WITHSCORES')
    for i = 1, #newest, 2 do
        redis.call('ZADD', KEYS[1], math.min(tonumber(newest[i + 1]), now), newest[i])
    end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - keep))
redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('ZCARD', KEYS[1])
