-- Merges minutes of one or more interfaces, as lua/latency_flush.lua and other writers of the same sorted sets have
-- left them. Reads only; a key that does not exist counts for nothing. Times come as whole microseconds.
-- KEYS: for each minute its sorted sets …_for_max, …_for_min, …_for_sum_count, …_for_hist, …_for_errors_bytes
-- ARGV: none
-- Reply: {count, sum, min, max, errors, bytes_in, bytes_out, index, n, index, n, …}: at most 593 buckets, 1193 integers;
--        min and max are 0 while count is 0; an error that names the key where one is of another type
-- Complexity: O(keys and buckets)
local keys_of_minute = 5
local index_least, index_most = -1, 591

if #KEYS == 0 or #KEYS % keys_of_minute ~= 0 then
    return redis.error_reply('HEADGATE a report takes ' .. keys_of_minute .. ' keys for each minute')
end

local problem

-- What is below zero, or more than a number holds exactly, is what others wrote: it counts for nothing.
local function score(key, member)
    local found = redis.pcall('ZSCORE', key, member)
    if type(found) == 'table' then
        problem = problem or key
        return nil
    end
    found = found and tonumber(found)
    return found and found >= 0 and found <= 2 ^ 53 and found
end

local function whole(number)
    return math.min(math.floor(number + 0.5), 2 ^ 53)
end

local count, sum, errors, bytes_in, bytes_out = 0, 0, 0, 0, 0
local min, max
local buckets, order = {}, {}
for first = 1, #KEYS, keys_of_minute do
    local max_key, min_key, sum_count, hist, errors_bytes = unpack(KEYS, first, first + keys_of_minute - 1)
    local highest, lowest = score(max_key, 'max'), score(min_key, 'min')
    max = highest and math.max(max or highest, highest) or max
    min = lowest and math.min(min or lowest, lowest) or min
    sum = sum + (score(sum_count, 'sum') or 0)
    count = count + (score(sum_count, 'count') or 0)
    errors = errors + (score(errors_bytes, 'errors') or 0)
    bytes_in = bytes_in + (score(errors_bytes, 'bytes_in') or 0)
    bytes_out = bytes_out + (score(errors_bytes, 'bytes_out') or 0)
    local members = redis.pcall('ZRANGE', hist, 0, -1, 'WITHSCORES')
    if members.err then
        problem = problem or hist
        members = {}
    end
    for i = 1, #members, 2 do
        local index = string.find(members[i], '^-?%d+$') and tonumber(members[i])
        local n = tonumber(members[i + 1])
        if index and index >= index_least and index <= index_most and n and n > 0 and n <= 2 ^ 53 then
            if not buckets[index] then
                order[#order + 1] = index
            end
            buckets[index] = (buckets[index] or 0) + n
        end
    end
end
if problem then
    return redis.error_reply('HEADGATE key ' .. problem .. ' cannot be read as a sorted set')
end

if count == 0 then
    min, max = 0, 0
end

local reply = {whole(count), whole(sum * 1000), whole((min or 0) * 1000), whole((max or 0) * 1000), whole(errors),
    whole(bytes_in), whole(bytes_out)}
table.sort(order)
for _, index in ipairs(order) do
    reply[#reply + 1] = index
    reply[#reply + 1] = whole(buckets[index])
end
return reply
