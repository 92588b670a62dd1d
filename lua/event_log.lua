-- Logs events of a name and a severity, in the well-known pattern of a list of the recent ones and of a sorted set of
-- how often each message came in this hour:
--   recent:<name>:<severity>         "Sat Nov 21 19:20:05 2026 message", newest first, cut at its length
--   common:<name>:<severity>         messages by frequency, since the hour in …:start began
--   common:<name>:<severity>:start   "2026-11-21T19:00:00"
--   common:<name>:<severity>:last    what was common in the hour before, which began at …:pstart
-- A message that came several times at once is one line of the list, "… message (3 times)", and counts as often as it
-- came. The sorted set is cut, too: at so many messages, those that came least go.
-- The time is Redis' own, in UTC, so that all sidecars change the hour together; what happened is given by its age. The
-- line has the time at which it happened (last); it counts in the hour in which it is told. When the clock is set back,
-- the hour that had begun becomes the one before, as at any other change of the hour; and if the one before comes
-- again, it goes on.
-- A call counts once: its number is kept, as in lua/latency_flush.lua. It writes all or nothing: types of keys and rights
-- of the user are looked at first, and the first write is the number's.
-- KEYS: the number of this sidecar's last call for the name and severity (no other sidecar writes it), recent, common,
--       common:start, common:last, common:pstart; a cluster needs them in one slot, by a hash tag in their prefix
-- ARGV: number (1 or more), for how many seconds it is kept (1 or more), length of the list (100), most messages of a
--       sorted set (1 or more), for how many seconds all is kept after the last event (0: for ever); then for each
--       event, oldest first: message, how often it came (1 or more), how many seconds ago (0 or more)
-- Reply: 1 if it was logged, 0 if it had been logged before; an error that names the key where another type is in the
--        way
-- Complexity: O(events * log(messages) + length)
local last_number, recent, common, start, common_last, previous_start = unpack(KEYS)
local first_event = 6

local function whole(text, least)
    local number = text and string.find(text, '^%d+$') and tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number
end

local number, remember, length = whole(ARGV[1], 1), whole(ARGV[2], 1), whole(ARGV[3], 1)
local messages_most, keep = whole(ARGV[4], 1), whole(ARGV[5], 0)
local sound = number and remember and length and messages_most and keep and #KEYS == 6 and #ARGV > first_event and
    (#ARGV - first_event) % 3 == 2
for i = first_event + 1, #ARGV, 3 do
    sound = sound and whole(ARGV[i], 1) and whole(ARGV[i + 1], 0)
end
if not sound then
    return redis.error_reply('HEADGATE the arguments of an event are not sound')
end

local wanted = {'string', 'list', 'zset', 'string', 'zset', 'string'}
for i, key in ipairs(KEYS) do
    local found = redis.call('TYPE', key).ok
    if found ~= 'none' and found ~= wanted[i] then
        return redis.error_reply('HEADGATE key ' .. key .. ' holds a ' .. found .. ', nothing was written')
    end
end

-- All commands from the first write on.
local uses = {{'SET', last_number, '1', 'EX', '1'}, {'TIME'}, {'EXISTS', common}, {'RENAME', common, common_last},
    {'DEL', common_last}, {'LPUSH', recent, '1'}, {'ZINCRBY', common, '1', '1'}, {'LTRIM', recent, '0', '1'},
    {'ZREMRANGEBYRANK', common, '0', '1'}, {'EXPIRE', recent, '1'}}
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

-- Year, month and day of so many days since 1970. Years are counted from March on, so that a leap day is their last.
local function date_of(days)
    local since_0000 = days + 719468
    local era = math.floor(since_0000 / 146097)
    local day_of_era = since_0000 - era * 146097
    local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524) -
        math.floor(day_of_era / 146096)) / 365)
    local day_of_year = day_of_era -
        (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
    local month_from_march = math.floor((5 * day_of_year + 2) / 153)
    local day = day_of_year - math.floor((153 * month_from_march + 2) / 5) + 1
    local month = month_from_march < 10 and month_from_march + 3 or month_from_march - 9
    return era * 400 + year_of_era + (month <= 2 and 1 or 0), month, day
end

local day_names = {'Thu', 'Fri', 'Sat', 'Sun', 'Mon', 'Tue', 'Wed'}
local month_names = {'Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'}

local now = tonumber(redis.call('TIME')[1])

-- "Sat Nov 21 19:20:05 2026", and the hour as "2026-11-21T19:00:00".
local function text_of(time)
    local days = math.floor(time / 86400)
    local hour, minute, second = math.floor(time % 86400 / 3600), math.floor(time % 3600 / 60), time % 60
    local year, month, day = date_of(days)
    return string.format('%s %s %2d %02d:%02d:%02d %d', day_names[days % 7 + 1], month_names[month], day, hour, minute,
        second, year), string.format('%04d-%02d-%02dT%02d:00:00', year, month, day, hour)
end

local _, this_hour = text_of(now)

local function move(from, to)
    if redis.call('EXISTS', from) == 1 then
        redis.call('RENAME', from, to)
    else
        redis.call('DEL', to)
    end
end

-- The number's key holds, for as long as this takes, what goes on.
if redis.call('GET', start) ~= this_hour then
    local goes_on = redis.call('GET', previous_start) == this_hour
    if goes_on then
        move(common_last, last_number)
    end
    move(common, common_last)
    move(start, previous_start)
    if goes_on then
        move(last_number, common)
        redis.call('SET', last_number, ARGV[1], 'EX', ARGV[2])
    end
    redis.call('SET', start, this_hour)
end

for i = first_event, #ARGV, 3 do
    local message, times, age = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
    local line = text_of(math.max(now - age, 0)) .. ' ' .. message
    redis.call('LPUSH', recent, times == '1' and line or line .. ' (' .. times .. ' times)')
    redis.call('ZINCRBY', common, times, message)
end
redis.call('LTRIM', recent, 0, length - 1)
redis.call('ZREMRANGEBYRANK', common, 0, -messages_most - 1)

for i = 2, keep > 0 and #KEYS or 1 do
    redis.call('EXPIRE', KEYS[i], ARGV[5])
end
return 1
