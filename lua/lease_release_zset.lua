-- Releases a permit of a semaphore that is a sorted set, for an owner that is gone.
-- KEYS: the sorted set
-- ARGV: member
-- Reply: 1 if the permit was there, else 0, also if the key is of another type
-- Complexity: O(log(members))

-- Caught and returned, an error reads the same from every version of Redis.
local removed = redis.pcall('ZREM', KEYS[1], ARGV[1])
if type(removed) == 'table' and string.sub(removed.err, 1, 9) == 'WRONGTYPE' then
    return 0
end
return removed
