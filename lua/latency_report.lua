-- Merges minutes of one or more interfaces, as lua/latency_flush.lua and other writers of the same sorted sets have
-- left them. Reads only. Times come as whole microseconds. A minute without any key had no requests. Of one with some,
-- a figure is not known if it is not there, if it is no number that it can be, or if the others say that it lacks some
-- requests; then it is not known of all minutes.
-- KEYS: for each minute its sorted sets …_for_max, …_for_min, …_for_sum_count, …_for_hist, …_for_errors_bytes
-- ARGV: none
-- Reply: {count, sum, min, max, errors, bytes_in, bytes_out, index, n, index, n, …}: at most 593 buckets, 1193 integers;
--        -1 for a figure that is not known; no buckets unless all of count are in them; an error that names the key
--        where one is of another type
-- Complexity: O(keys, members and buckets)
local keys_of_minute, hist = 5, 4
local index_least, index_most = -1, 591
local names = {'count', 'sum', 'min', 'max', 'errors', 'bytes_in', 'bytes_out'}
-- In which of the keys a figure is, and what makes a whole number of it: 1 where it has to be one.
local key_of = {max = 1, min = 2, sum = 3, count = 3, errors = 5, bytes_in = 5, bytes_out = 5}
local unit = {max = 1000, min = 1000, sum = 1000}

if #KEYS == 0 or #KEYS % keys_of_minute ~= 0 then
    return redis.error_reply('HEADGATE a report takes ' .. keys_of_minute .. ' keys for each minute')
end

local problem

-- What is below zero, or more than a number holds exactly, is what others wrote.
local function figure_of(name, score)
    local exact = score * (unit[name] or 1)
    local whole = math.floor(exact + 0.5)
    local least = name == 'count' and 1 or 0
    return score >= 0 and whole >= least and whole <= 2 ^ 53 and (unit[name] or whole == exact) and whole or nil
end

-- What a bucket's values are above; they are up to the next one's. The first has 0, too, and the last has no end.
local bounds = {}
for index = index_least, index_most do
    bounds[index] = 2 ^ (index / 16)
end
bounds[index_least], bounds[index_most + 1] = -1, math.huge

local function add_buckets(minute, members)
    local buckets, in_buckets, lowest, highest, sum = minute.buckets, 0, index_most, index_least, 0
    for i = 1, #members, 2 do
        local index = string.find(members[i], '^-?%d+$') and tonumber(members[i])
        local n, bound = tonumber(members[i + 1]), bounds[index or index_most + 1]
        if bound and bound < math.huge and n >= 1 and n <= 2 ^ 53 and n % 1 == 0 then
            buckets[index] = (buckets[index] or 0) + n
            in_buckets = in_buckets + n
            sum = sum + n * bound
            lowest = index < lowest and index or lowest
            highest = index > highest and index or highest
        end
    end
    minute.in_buckets, minute.lowest, minute.highest, minute.sum_above = in_buckets, lowest, highest, sum
end

-- Its figures and buckets, or nothing if there is none.
local function read(first)
    local minute, is_there = {buckets = {}}, false
    for at = 1, keys_of_minute do
        local key = KEYS[first + at - 1]
        local members = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
        if members.err then
            problem = problem or key
            members = {}
        end
        is_there = is_there or #members > 0
        if at == hist then
            add_buckets(minute, members)
        else
            for i = 1, #members, 2 do
                local name = members[i]
                if key_of[name] == at then
                    minute[name] = figure_of(name, tonumber(members[i + 1]))
                end
            end
        end
    end
    return is_there and minute
end

-- Forgets what other figures contradict; a sum may be rounded.
local function check(minute)
    local buckets, min, max, sum, sum_least = minute.buckets, minute.min, minute.max, minute.sum, minute.sum_above
    local least = buckets[index_least] or 0
    local sum_most = buckets[index_most] and math.huge or (sum_least + least) * 2 ^ (1 / 16) + least
    local is_whole, has_some = minute.in_buckets == minute.count, minute.in_buckets > 0
    if minute.count and minute.in_buckets > minute.count then
        minute.count, minute.sum = nil, nil
    end
    if max and has_some and (max <= bounds[minute.highest] or is_whole and max > bounds[minute.highest + 1]) then
        minute.max = nil
    end
    if min and has_some and (min > bounds[minute.lowest + 1] or is_whole and min <= bounds[minute.lowest]) then
        minute.min = nil
    end
    if sum and is_whole and (sum < sum_least * (1 - 1e-9) or sum > sum_most * (1 + 1e-9)) then
        minute.sum = nil
    end
    minute.is_whole = is_whole
end

local totals, is_unknown = {}, {}
local buckets, order, is_whole = {}, {}, true

local function add(minute)
    for _, name in ipairs(names) do
        local figure, total = minute[name], totals[name]
        if not figure then
            is_unknown[name] = true
        elseif name == 'max' then
            totals.max = math.max(total or figure, figure)
        elseif name == 'min' then
            totals.min = math.min(total or figure, figure)
        else
            totals[name] = (total or 0) + figure
        end
    end
    for index, n in pairs(minute.buckets) do
        if not buckets[index] then
            order[#order + 1] = index
        end
        buckets[index] = (buckets[index] or 0) + n
    end
    is_whole = is_whole and minute.is_whole
end

for first = 1, #KEYS, keys_of_minute do
    local minute = read(first)
    if minute then
        check(minute)
        add(minute)
    end
end
if problem then
    return redis.error_reply('HEADGATE key ' .. problem .. ' cannot be read as a sorted set')
end

local reply = {}
for i, name in ipairs(names) do
    local total = totals[name] or 0
    reply[i] = (is_unknown[name] or total > 2 ^ 53) and -1 or total
end
table.sort(order)
for _, index in ipairs(is_whole and order or {}) do
    reply[#reply + 1] = index
    reply[#reply + 1] = buckets[index]
end
return reply
