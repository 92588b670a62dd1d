-- CL.THROTTLE as the module redis-cell answers it, for servers without the module: the generic cell rate algorithm.
-- The module keeps the time at which all will be available again and, being rounded, loses it above 1,000 a second.
-- Here it is a string "level time interval": how many permits were in use, when, and how many µs one takes to come
-- back. The first and last have a fraction and are written so that they are read back as the very same, so nothing is
-- rounded at a million a second either. Asked with another rate, the level stays the same stretch of time, as with the
-- module. The time is Redis' own.
-- KEYS: what is throttled
-- ARGV: max_burst (0 or more), count (1 or more), period in seconds (1 or more), quantity (0 or more; 0 stores nothing),
--       and optionally "try": use the module's command if the server has it after all
-- Reply: {refused 0 or 1, max_burst + 1, remaining, retry_after (-1: admitted, or it never will be), reset_after};
--        times in seconds, rounded up (the module drops what is left of a millisecond before)
-- Complexity: O(1)
local key = KEYS[1]

if ARGV[5] == 'try' then
    -- As lua/delifeq.lua looks for it.
    local look = redis.acl_check_cmd
    local has = not look or pcall(look, 'CL.THROTTLE', key, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
    local reply = has and redis.pcall('CL.THROTTLE', key, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
    local lacks = not look and type(reply) == 'table' and reply.err and
        (string.find(reply.err, '^ERR ') or string.find(reply.err, '^@'))
    if has and not lacks then
        return reply
    end
end

local function whole(text, least)
    local number = tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number % 1 == 0 and number
end

local max_burst, count, period = whole(ARGV[1], 0), whole(ARGV[2], 1), whole(ARGV[3], 1)
local quantity = whole(ARGV[4], 0)
-- The module reckons with nanoseconds of 64 bits; what they cannot hold, it answers with nonsense.
local seconds_max = 9223372036
if not (max_burst and count and period and quantity) or (max_burst + 1) * period / count > seconds_max then
    return redis.error_reply('ERR max_burst, count, period or quantity out of range')
end
local limit = max_burst + 1
local interval = period * 1000000 / count

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Caught and returned, an error reads the same from every version of Redis.
local value = redis.pcall('GET', key)
if type(value) == 'table' then
    return value
end

local level, time = 0, now
if value then
    local level_text, time_text, interval_text = string.match(value, '^(%d[%d.e+-]*) (%d+) (%d[%d.e+-]*)$')
    local level_then, interval_then = tonumber(level_text), tonumber(interval_text)
    time = tonumber(time_text)
    if not (level_then and time and interval_then and level_then * interval_then <= seconds_max * 1000000) then
        return redis.error_reply('HEADGATE the state of this limit was overwritten')
    end
    -- With the same interval this is a multiplication by 1, which changes nothing.
    level = level_then * (interval_then / interval)
end

-- A clock that was set back: no time has passed, and from here on it is the new time that counts.
local set_back = time > now
level = math.max(0, level - math.max(0, now - time) * count / (period * 1000000))

local refused = level + quantity > limit
local retry_after = -1
if refused and quantity <= limit then
    retry_after = math.ceil((level + quantity - limit) * period / count)
elseif not refused then
    level = level + quantity
end

if quantity > 0 and (set_back or not refused) then
    -- A second longer than it says anything: however high the rate, it is not lost early.
    local life = math.ceil(level * interval / 1000) + 1000
    redis.call('SET', key, string.format('%.17g %.0f %.17g', level, now, interval), 'PX', string.format('%.0f', life))
end
return {refused and 1 or 0, limit, math.max(0, math.floor(limit - level)), retry_after,
    math.ceil(level * period / count)}
