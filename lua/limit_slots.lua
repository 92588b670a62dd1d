-- A sliding window in bounded memory: a string of at most 66 slots, each with the last moment at which one of its
-- permits may be spent, and how many they are. A slot leaves the window with its last. Limits up to 64 are exact.
-- Larger ones share slots of a 64th of the window (and the hold): permits come back at most that much late, and never
-- early, so that there are never more than the limit in any window.
-- The time is Redis' own, which all that share the limit have in common. A number holds its microseconds exactly.
-- KEYS: the limit
-- ARGV: limit, window in µs, cost (permits wanted), least (the fewest that will do, 1 to cost), hold in µs (0 to
--       window; 0: spent at once, else until so long from now)
-- Reply: {granted, wait, mark}: the most permits from least to cost that there are, or 0; in how many µs least of them
--        will be granted again, 0: at once, as all were granted, -1: never, as they are more than the limit; and by
--        what limit_return knows them: the last of their slot, 0: there are none
-- Complexity: O(1)
local key = KEYS[1]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local least, hold = tonumber(ARGV[4]), tonumber(ARGV[5])

if least > limit then
    return {0, -1, 0}
end

-- With slots that begin at least a share apart there are at most two more than shares of what is kept.
local shares = 64
local slots_max = shares + 2
local share = limit > shares and math.ceil((window + hold) / shares) or 0

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Caught and returned, an error reads the same from every version of Redis.
local value = redis.pcall('GET', key)
if type(value) == 'table' then
    return value
end

-- The tag, when the newest slot began, how many permits are in all slots, and the slots, oldest first. They stay packed
-- but for the few that a call looks at, which is most of its speed.
local tag, pair, pair_size = 'slots:', '>dd', 16
local began, used, slots = 0, 0, ''
if value then
    local size = #value - #tag - pair_size
    if string.sub(value, 1, #tag) ~= tag or size % pair_size ~= 0 or size < pair_size or
        size > slots_max * pair_size then
        return redis.error_reply('HEADGATE the state of this limit was overwritten')
    end
    began, used = struct.unpack(pair, value, #tag + 1)
    slots = string.sub(value, -size)
end

local expired = 0
while expired < #slots do
    local last, count = struct.unpack(pair, slots, expired + 1)
    if last > now - window then
        break
    end
    used = used - count
    expired = expired + pair_size
end
slots = string.sub(slots, expired + 1)

local newest, newest_count = 0, 0
if slots ~= '' then
    newest, newest_count = struct.unpack(pair, slots, #slots - pair_size + 1)
end

local function store()
    local life = math.ceil((newest + window - now) / 1000) + 1000
    redis.call('SET', key, tag .. struct.pack(pair, began, used) .. slots, 'PX', string.format('%.0f', life))
end

-- Others may hold longer, but not by more than a window: what lies beyond was recorded before the clock was set back.
-- It is taken for new. So a clock that jumps neither forgets a permit nor keeps it for more than a window too long.
local set_back = newest > now + hold + window
if set_back then
    local moved = {}
    for offset = 1, #slots, pair_size do
        local last, count = struct.unpack(pair, slots, offset)
        moved[#moved + 1] = struct.pack(pair, math.min(last, now + hold), count)
    end
    slots = table.concat(moved)
    newest = now + hold
end
began = math.min(began, now)

local function wait_for_least()
    local over, offset, leaves, count = used + least - limit, 1
    repeat
        leaves, count = struct.unpack(pair, slots, offset)
        over = over - count
        offset = offset + pair_size
    until over <= 0
    return leaves + window - now
end

local granted = math.min(cost, limit - used)
if granted < least then
    if set_back then
        store()
    end
    return {0, wait_for_least(), 0}
end

-- Never before the slot that is the newest so far: they stay in order even where holds differ.
local last = math.max(newest, now + hold)
if slots == '' or (last > newest and now - began >= share and #slots < slots_max * pair_size) then
    began = now
    newest_count = 0
else
    slots = string.sub(slots, 1, -pair_size - 1)
end
newest = last
used = used + granted
slots = slots .. struct.pack(pair, newest, newest_count + granted)
store()
return {granted, granted < cost and wait_for_least() or 0, last}
