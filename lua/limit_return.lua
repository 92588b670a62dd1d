-- Gives back permits that were granted but not used, as another limit refused the request.
-- Never makes more available than was taken: state that is gone, expired or not a limit's own is left alone. A permit
-- is taken from its own slot, and what has leaked out of a funnel since is not given back again; so not even what others
-- were granted meanwhile can be given away, however late it comes. But where the grant itself was lost (a failover,
-- FLUSHDB, a reset by another sidecar) what others were granted within a slot's time after it, or by a funnel, can be:
-- then one more is admitted than the limit says.
-- KEYS: the limit
-- ARGV: kind ("slots" or "funnel"), count, mark (that they were granted with), and of slots: window in µs; of a
--       funnel: leak, period in µs
-- Reply: how many were given back
-- Complexity: O(1)
local key, kind, count, mark = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call('TIME')
local age = clock[1] * 1000000 + clock[2] - mark

-- Nil if there is none, or a value of another type.
local function text()
    local value = redis.pcall('GET', key)
    return type(value) == 'string' and value
end

-- It goes on to expire when it would have.
local function store(value)
    local life = redis.call('PTTL', key)
    redis.call('SET', key, value)
    if life >= 0 then
        redis.call('PEXPIRE', key, math.max(life, 1))
    end
end

local tag, pair, pair_size, slots_max = 'slots:', '>dd', 16, 66

local function return_to_slots(window)
    local value = text()
    local size = value and #value - #tag - pair_size or 0
    if size < pair_size or size % pair_size ~= 0 or size > slots_max * pair_size or
        string.sub(value, 1, #tag) ~= tag or age >= window then
        return 0
    end
    local began, used = struct.unpack(pair, value, #tag + 1)
    local lasts, counts = {}, {}
    for offset = #value - size + 1, #value, pair_size do
        lasts[#lasts + 1], counts[#counts + 1] = struct.unpack(pair, value, offset)
    end

    -- Its slot is the first that ends no earlier, and has gone on for no more than a share since: else it was lost.
    local own = 1
    while own <= #lasts and lasts[own] < mark do
        own = own + 1
    end
    if own > #lasts or lasts[own] > mark + window / 32 then
        return 0
    end
    local given = math.min(count, counts[own])
    counts[own] = counts[own] - given

    -- An empty slot would take up the place of another. Without the newest the next permit begins a slot of its own.
    local packed = {}
    for i = 1, #lasts do
        if counts[i] > 0 then
            packed[#packed + 1] = struct.pack(pair, lasts[i], counts[i])
        end
    end
    if #packed == 0 then
        redis.call('DEL', key)
    else
        began = counts[#counts] > 0 and began or 0
        store(tag .. struct.pack(pair, began, used - given) .. table.concat(packed))
    end
    return given
end

local function return_to_funnel(leak, period)
    local value = text()
    if not value or age < 0 then
        return 0
    end
    local level_text, time_text = string.match(value, '^(%d[%d.e+-]*) (%d+)$')
    local level = tonumber(level_text)
    if not (level and tonumber(time_text) and level < math.huge) then
        return 0
    end
    -- Less than a hundredth of a drop would cost a request its place.
    local leaked = age * leak / period
    local given = math.min(level, math.max(0, leaked < 0.01 and count or count - leaked))
    if given == 0 then
        return 0
    end
    if given == level then
        redis.call('DEL', key)
    else
        store(string.format('%.17g %s', level - given, time_text))
    end
    return math.ceil(given)
end

if kind == 'slots' then
    return return_to_slots(tonumber(ARGV[4]))
end
return return_to_funnel(tonumber(ARGV[4]), tonumber(ARGV[5]))
