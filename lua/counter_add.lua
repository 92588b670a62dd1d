-- Adds to the time-sliced counters of a name, in the well-known pattern of a hash count:<precision>:<name> for each
-- precision in seconds, with a field for each slice (the Unix time at which it began) and how many fell into it, and of
-- a sorted set known: that lists them as <precision>:<name>, all with the score 0. Of each hash the newest samples are
-- kept, and a hash that nothing was added to for as long as they span expires. Then it leaves known: with the next call
-- for the name, which may have nothing to add.
-- The time is Redis' own, so that all sidecars fill the same slices: what happened is given by its age. A sidecar that
-- repeats a call whose reply was lost says the same number, and ages that count from then; it counts once.
-- Like lua/latency_flush.lua it writes all or nothing: types of keys and rights of the user are looked at first, and the
-- first write is the number's.
-- KEYS: known:, the number of this sidecar's last call for the name (no other sidecar writes it), and a hash for each
--       precision; a cluster needs them in one slot, by a hash tag in their prefix
-- ARGV: number (1 or more), for how many seconds it is kept (1 or more), name, the precisions in seconds "1 5 60 …" in
--       the order of the hashes, samples to keep of each (120), "age n age n …": whole numbers, how many seconds ago (0
--       or more) and how many (1 or more)
-- Reply: 1 if it was counted, 0 if it had been counted before; an error that names the key where another type is in the
--        way
-- Complexity: O(precisions * (ages + samples * log(samples)))
local known, last_number = KEYS[1], KEYS[2]
local first_hash = 3
local name = ARGV[3]

local function whole(text, least)
    local number = text and string.find(text, '^%d+$') and tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number
end

-- The whole numbers of a text, or nothing if there is one below its least, which is the first's and the second's by
-- turns.
local function numbers_of(text, least_odd, least_even)
    local numbers = {}
    for word in string.gmatch(text or '', '%S+') do
        local number = whole(word, #numbers % 2 == 0 and least_odd or least_even)
        if not number then
            return nil
        end
        numbers[#numbers + 1] = number
    end
    return numbers
end

local number, remember, samples = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[5], 1)
local precisions, ages = numbers_of(ARGV[4], 1, 1), numbers_of(ARGV[6], 0, 1)
if not (number and remember and samples and precisions and ages and #ARGV == 6 and #ages % 2 == 0 and
    #precisions >= 1 and #KEYS == first_hash - 1 + #precisions) then
    return redis.error_reply('HEADGATE the arguments of a counter are not sound')
end

for i, key in ipairs(KEYS) do
    local wanted = i == 1 and 'zset' or i == 2 and 'string' or 'hash'
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= wanted then
        return redis.error_reply('HEADGATE key ' .. key .. ' holds a ' .. found .. ', nothing was written')
    end
end

-- All commands from the first write on.
local one_hash = KEYS[first_hash]
local uses = {{'SET', last_number, '1', 'EX', '1'}, {'TIME'}, {'HINCRBY', one_hash, '0', '1'}, {'HLEN', one_hash},
    {'HKEYS', one_hash}, {'HDEL', one_hash, '0'}, {'EXISTS', one_hash}, {'EXPIRE', one_hash, '1'},
    {'ZADD', known, '0', name}, {'ZREM', known, name}}
for _, command in ipairs(redis.acl_check_cmd and uses or {}) do
    if not redis.acl_check_cmd(unpack(command)) then
        return redis.error_reply('NOPERM the user of the sidecar may not use ' .. command[1] .. ', nothing was written')
    end
end

local last = redis.call('GET', last_number)
if last and number <= (tonumber(last) or 0) then
    return 0
end
-- Caught and returned, an error reads the same from every version of Redis.
local written = redis.pcall('SET', last_number, ARGV[1], 'EX', ARGV[2])
if written.err then
    return written
end

local now = tonumber(redis.call('TIME')[1])

local function add(hash, precision)
    local oldest = now - now % precision - (samples - 1) * precision
    for i = 1, #ages, 2 do
        local time = now - ages[i]
        local slice = time - time % precision
        if slice >= oldest then
            -- A field that holds no number is somebody else's.
            redis.pcall('HINCRBY', hash, string.format('%.0f', slice), string.format('%.0f', ages[i + 1]))
        end
    end
end

-- Slices that have not begun were filled before the clock was set back; they would never be the oldest. As long as there
-- is room they stay: the same times come again, and what fell into them is added to.
local function forget_old(hash)
    local over = redis.call('HLEN', hash) - samples
    if over <= 0 then
        return
    end
    local slices = {}
    for _, field in ipairs(redis.call('HKEYS', hash)) do
        local slice = tonumber(field)
        if slice and slice > now then
            redis.call('HDEL', hash, field)
            over = over - 1
        elseif slice then
            slices[#slices + 1] = {slice, field}
        end
    end
    table.sort(slices, function(a, b) return a[1] < b[1] end)
    for i = 1, math.min(over, #slices) do
        redis.call('HDEL', hash, slices[i][2])
    end
end

for i, precision in ipairs(precisions) do
    local hash = KEYS[first_hash - 1 + i]
    local member = string.format('%.0f:%s', precision, name)
    add(hash, precision)
    forget_old(hash)
    if redis.call('EXISTS', hash) == 0 then
        redis.call('ZREM', known, member)
    else
        redis.call('ZADD', known, 0, member)
        if #ages > 0 then
            redis.call('EXPIRE', hash, string.format('%.0f', precision * (samples + 1)))
        end
    end
end
return 1
