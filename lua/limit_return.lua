-- Gives back permits that were granted but not used, as another limit refused the request.
-- Never makes more available than was taken: state that is gone, expired or not a limit's own is left alone. Of permits
-- that look alike those are taken that come back soonest, and what has leaked out of a funnel since is not given back
-- again; so not even what others were granted meanwhile can be given away.
-- KEYS: the limit
-- ARGV: kind ("log", "slots" or "funnel"), count, and
--       of a log: the id that they were granted under, and which of these permits is the first (1 without it)
--       of slots: how many µs ago they were asked for (or more; it need not be known to the µs), window in µs
--       of a funnel: how many µs ago they were asked for (or more), leak, period in µs
--       Without a time of asking nobody else may have been granted any meanwhile: slots give back the newest, and a
--       funnel all of them.
-- Reply: how many were given back
-- Complexity: O(count * log(limit)) of a log, else O(1)
local key, kind, count = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- Lua passes on only a few thousand arguments in one call.
local at_once = 1000

local function return_to_log(id, from)
    local given, last = 0, from + count - 1
    for first = from, last, at_once do
        local members = {}
        for i = first, math.min(first + at_once - 1, last) do
            members[#members + 1] = id .. ':' .. i
        end
        local removed = redis.pcall('ZREM', key, unpack(members))
        if type(removed) == 'table' then
            return 0
        end
        given = given + removed
    end
    return given
end

local function now()
    local clock = redis.call('TIME')
    return clock[1] * 1000000 + clock[2]
end

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

local function return_to_slots(age, window)
    local value = text()
    local size = value and #value - #tag - pair_size or 0
    if size < pair_size or size % pair_size ~= 0 or size > slots_max * pair_size or
        string.sub(value, 1, #tag) ~= tag or (age and age >= window) then
        return 0
    end
    local began, used = struct.unpack(pair, value, #tag + 1)
    local lasts, counts = {}, {}
    for offset = #value - size + 1, #value, pair_size do
        lasts[#lasts + 1], counts[#counts + 1] = struct.unpack(pair, value, offset)
    end

    -- Which slots, and in which order.
    local from, to, step = #lasts, 1, -1
    if age then
        local asked = now() - age
        from, to, step = 1, #lasts, 1
        while from <= to and lasts[from] < asked do
            from = from + 1
        end
    end
    local left = count
    for i = from, to, step do
        local given = math.min(left, counts[i])
        counts[i] = counts[i] - given
        left = left - given
    end
    if left == count then
        return 0
    end

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
        store(tag .. struct.pack(pair, began, used - count + left) .. table.concat(packed))
    end
    return count - left
end

local function return_to_funnel(age, leak, period)
    local value = text()
    if not value then
        return 0
    end
    local level_text, time_text = string.match(value, '^(%d[%d.e+-]*) (%d+)$')
    local level = tonumber(level_text)
    if not (level and tonumber(time_text) and level < math.huge) then
        return 0
    end
    local given = math.min(level, math.max(0, count - (age and age * leak / period or 0)))
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

if kind == 'log' then
    return return_to_log(ARGV[3], tonumber(ARGV[4] or 1))
elseif kind == 'slots' then
    return return_to_slots(tonumber(ARGV[3]), tonumber(ARGV[4]))
end
return return_to_funnel(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
