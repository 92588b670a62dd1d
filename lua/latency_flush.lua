-- Adds what a sidecar has measured for one interface to the sorted sets of its minutes, so that all sidecars add up:
--   …_for_max           member max: ms, as a decimal number
--   …_for_min           member min: ms
--   …_for_sum_count     members sum (ms) and count
--   …_for_hist          a member for each bucket that is not empty, the bucket's index, its score how many: the bucket of
--                       index i holds those above 2^(i/16) µs and up to 2^((i+1)/16) µs
--   …_for_errors_bytes  members errors, bytes_in and bytes_out
-- A flush counts once: its number is kept, and a number that is not above the one kept is not counted again. A sidecar
-- sends the next flush of an interface only when the one before it was answered, so they come in order.
-- Of a minute that lost some of its keys, as to eviction, these stay away: with what comes later alone they would look
-- whole.
-- It writes all or nothing. What could fail is looked at first: the arguments, the types of the keys, the rights of the
-- user. Redis being out of memory, read-only or unable to save fails the first write, which is the number's.
-- Buckets are added by ZUNIONSTORE, which takes less time than a ZINCRBY for each. What it adds has to be a key: the
-- number's, which has its number again at the end, and nobody sees it in between.
-- KEYS: the number of this sidecar's last flush of the interface (no other sidecar writes it); then for each minute the
--       five sorted sets, in the order above
-- ARGV: number (1 or more), for how many seconds it is kept, for how many seconds the minutes are kept (1 or more
--       each); then for each minute "max min sum count errors bytes_in bytes_out n index n index …", whole numbers, the
--       first three in µs, count and every n 1 or more
-- Reply: 1 if it was counted, 0 if it had been counted before; an error that names the key where another type is in the
--        way
-- Complexity: O(B log B) for each minute, where B is its buckets and those that Redis has
local keys_of_minute = 5
-- Figures of a minute ahead of its buckets.
local head = 7

local function whole(text, least)
    local number = text and string.find(text, '^-?%d+$') and tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number
end

local number, remember, retention = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[3], 1)
local count_of_minutes = #ARGV - 3
local sound = number and remember and retention and count_of_minutes >= 1 and
    #KEYS == 1 + count_of_minutes * keys_of_minute

-- One for each minute: its figures as texts, checked. Without other characters what is a number is a whole one.
local minutes = {}
for i = 1, sound and count_of_minutes or 0 do
    local figures = {}
    for text in string.gmatch(ARGV[3 + i], '%S+') do
        local at, figure = #figures + 1, tonumber(text)
        local least = (at == 4 or at > head and at % 2 == 0) and 1 or at > head and -2 ^ 53 or 0
        sound = sound and figure and figure >= least and figure <= 2 ^ 53
        figures[at] = text
    end
    sound = sound and #figures >= head and (#figures - head) % 2 == 0 and not string.find(ARGV[3 + i], '[^%d -]')
    minutes[i] = figures
end
if not sound then
    return redis.error_reply('HEADGATE the arguments of a flush are not sound')
end

local is_there = {}
for i, key in ipairs(KEYS) do
    local wanted = i == 1 and 'string' or 'zset'
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= wanted then
        return redis.error_reply('HEADGATE key ' .. key .. ' holds a ' .. found .. ', nothing was written')
    end
    is_there[i] = found ~= 'none'
end

local may_not = redis.acl_check_cmd and
    (not redis.acl_check_cmd('SET', KEYS[1], '1', 'EX', '1') and 'SET' or
    not redis.acl_check_cmd('ZSCORE', KEYS[2], 'max') and 'ZSCORE' or
    not redis.acl_check_cmd('ZADD', KEYS[2], '1', 'max') and 'ZADD' or
    not redis.acl_check_cmd('ZINCRBY', KEYS[2], '1', 'count') and 'ZINCRBY' or
    not redis.acl_check_cmd('ZUNIONSTORE', KEYS[2], '2', KEYS[2], KEYS[1]) and 'ZUNIONSTORE' or
    not redis.acl_check_cmd('DEL', KEYS[1]) and 'DEL' or
    not redis.acl_check_cmd('EXPIRE', KEYS[2], '1') and 'EXPIRE')
if may_not then
    return redis.error_reply('NOPERM the user of the sidecar may not use ' .. may_not .. ', nothing was written')
end

-- Caught and returned, an error reads the same from every version of Redis.
local last = redis.call('GET', KEYS[1])
if last and number <= (tonumber(last) or 0) then
    return 0
end
local written = redis.pcall('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
if written.err then
    return written
end

local function milliseconds(us)
    return string.format('%.3f', us / 1000)
end

local function keep_extreme(key, member, us, is_beyond)
    local found = tonumber(redis.call('ZSCORE', key, member) or nil)
    if not found or is_beyond(us / 1000, found) then
        redis.call('ZADD', key, milliseconds(us), member)
    end
end

local function is_above(a, b)
    return a > b
end

local function is_below(a, b)
    return a < b
end

for i, figures in ipairs(minutes) do
    local first = 2 + (i - 1) * keys_of_minute
    local max, min, sum_count, hist, errors_bytes = unpack(KEYS, first, first + keys_of_minute - 1)
    keep_extreme(max, 'max', figures[1], is_above)
    keep_extreme(min, 'min', figures[2], is_below)
    redis.call('ZINCRBY', sum_count, milliseconds(figures[3]), 'sum')
    redis.call('ZINCRBY', sum_count, figures[4], 'count')
    redis.call('ZINCRBY', errors_bytes, figures[5], 'errors')
    redis.call('ZINCRBY', errors_bytes, figures[6], 'bytes_in')
    redis.call('ZINCRBY', errors_bytes, figures[7], 'bytes_out')
    if #figures > head then
        redis.call('DEL', KEYS[1])
        redis.call('ZADD', KEYS[1], unpack(figures, head + 1))
        redis.call('ZUNIONSTORE', hist, 2, hist, KEYS[1])
    end
    local has_begun = false
    for at = first, first + keys_of_minute - 1 do
        has_begun = has_begun or is_there[at]
    end
    for at = first, first + keys_of_minute - 1 do
        if has_begun and not is_there[at] then
            redis.call('DEL', KEYS[at])
        end
        redis.call('EXPIRE', KEYS[at], ARGV[3])
    end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
