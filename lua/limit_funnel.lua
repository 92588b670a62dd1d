-- The funnel (leaky bucket): so many drops fit in, and it leaks at a steady rate. A string "level time": how many drops
-- were in it, and when. The level is a number with a fraction, written so that it is read back as the very same, and
-- the time is whole microseconds: nothing is rounded away at a million a second, nor at one an hour.
-- Drops that may be held for later count as if they arrived as late as they may be spent: by then others have leaked.
-- The time is Redis' own, which all that share the limit have in common.
-- KEYS: the limit
-- ARGV: capacity, leak (drops in each period), period in µs, cost (drops wanted), least (the fewest that will do, 1 to
--       cost), hold in µs (0: spent at once, else until so long from now)
-- Reply: {granted, wait, mark}: the most drops from least to cost that fit, or 0; in how many µs least of them will
--        fit again, 0: at once, as all did, -1: never, as they are more than the capacity; and what limit_return is to
--        be told of them: the time
-- Complexity: O(1)
local key = KEYS[1]
local capacity, leak, period = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local cost, least, hold = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

if least > capacity then
    return {0, -1, 0}
end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Caught and returned, an error reads the same from every version of Redis.
local value = redis.pcall('GET', key)
if type(value) == 'table' then
    return value
end

local level, time = 0, now
if value then
    local level_text, time_text = string.match(value, '^(%d[%d.e+-]*) (%d+)$')
    level, time = tonumber(level_text), tonumber(time_text)
    if not (level and time and level < math.huge) then
        return redis.error_reply('HEADGATE the state of this limit was overwritten')
    end
end

-- A clock that was set back: no time has passed, and from here on it is the new time that counts.
local set_back = time > now
level = math.max(0, level - math.max(0, now - time) * leak / period)

local function store()
    local life = math.ceil(level * period / leak / 1000) + 1000
    redis.call('SET', key, string.format('%.17g %.0f', level, now), 'PX', string.format('%.0f', life))
end

-- Always a little more, so that the last digits of fractions, of which each step rounds some, cannot make it too short.
local function wait_for_least()
    return math.floor((level + least - capacity + capacity * 2 ^ -50) * period / leak) + 1
end

local granted = math.min(cost, math.floor(capacity - level))
if granted < least then
    if set_back then
        store()
    end
    return {0, wait_for_least(), 0}
end

level = math.max(level, hold * leak / period) + granted
store()
return {granted, granted < cost and wait_for_least() or 0, now}
