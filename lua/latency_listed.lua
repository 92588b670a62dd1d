-- The interfaces that lua/latency_list.lua has noted. Reads only.
-- KEYS: the sorted set
-- ARGV: how many at most (1 or more): those named last
-- Reply: {name, name, …}; an error that names the key where another type is in the way
-- Complexity: O(log M + N) where M is the names that are there and N those given
local most = tonumber(ARGV[1])
if not (KEYS[1] and most and most >= 1 and most % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or number of interfaces out of range')
end

local names = redis.pcall('ZREVRANGE', KEYS[1], 0, most - 1)
if names.err then
    return redis.error_reply('HEADGATE key ' .. KEYS[1] .. ' cannot be read as a sorted set')
end
table.sort(names)
return names
