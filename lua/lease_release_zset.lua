-- Releases a permit of a semaphore that is a sorted set, for an owner that is gone, unless that has come back and given it
-- another score.
-- KEYS: the sorted set
-- ARGV: member, its score (none or empty: any), and other members, which go with it if they have its score
-- Reply: 1 if the permit was there, else 0, also if the key is of another type
-- Complexity: O(others * log(members))

-- Caught and returned, an error reads the same from every version of Redis.
local score = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
if type(score) == 'table' then
    return string.sub(score.err, 1, 9) == 'WRONGTYPE' and 0 or score
elseif not score or ((ARGV[2] or '') ~= '' and tonumber(score) ~= tonumber(ARGV[2])) then
    return 0
end
for i = 3, #ARGV do
    if redis.call('ZSCORE', KEYS[1], ARGV[i]) == score then
        redis.call('ZREM', KEYS[1], ARGV[i])
    end
end
return redis.call('ZREM', KEYS[1], ARGV[1])
