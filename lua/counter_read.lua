-- Reads a time-sliced counter as lua/counter_add.lua and other writers of the pattern leave it. Reads only.
-- KEYS: the hash count:<precision>:<name>
-- ARGV: how many samples at most (1 to 1000)
-- Reply: {slice, n, slice, n, …}, the newest slices, oldest first: when each began in Unix time, and how many fell into
--        it, -1 where no number of them is; fields that are no whole numbers are left out, and slices that have not
--        begun: they are from before the clock was set back
-- Complexity: O(N log N) where N is the fields of the hash
local most = tonumber(ARGV[1])
if not (KEYS[1] and most and most >= 1 and most <= 1000 and most % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or number of samples out of range')
end

-- Caught and returned, an error reads the same from every version of Redis.
local found = redis.pcall('HGETALL', KEYS[1])
if found.err then
    return found
end

local function whole(text)
    local number = string.find(text, '^%d+$') and tonumber(text)
    return number and number <= 2 ^ 53 and number
end

local now = tonumber(redis.call('TIME')[1])
local samples = {}
for i = 1, #found, 2 do
    local slice = whole(found[i])
    if slice and slice <= now then
        samples[#samples + 1] = {slice, whole(found[i + 1]) or -1}
    end
end
table.sort(samples, function(a, b) return a[1] < b[1] end)

local reply = {}
for i = math.max(1, #samples - most + 1), #samples do
    reply[#reply + 1] = samples[i][1]
    reply[#reply + 1] = samples[i][2]
end
return reply
