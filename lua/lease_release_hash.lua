-- Releases a lock that is a hash with a field for each owner, for an owner that is gone, however often it holds it; the
-- lock of the last owner is deleted. The times to live of what others have stay as they are, and nothing is published:
-- who waits for the lock's message goes on waiting as long as it was told to. The owner may have come back just before:
-- what lives longer than it left it with, or for ever, somebody has extended, and it is left alone.
-- KEYS: the hash; for a read lock also the owner's holds ({name}:<owner>:rwlock_timeout:<n>), whether they exist or not
-- ARGV: field, most in ms (no longer than this it lives if nobody has touched it: of a read lock the longest hold, or the
--       hash if that ends sooner; without it: as long as it likes)
-- Reply: 1 if the owner had it, else 0, also if the key is of another type
-- Complexity: O(keys)
local key, field, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local life, longest = redis.call('PTTL', key), -2
for i = 2, #KEYS do
    local hold = redis.call('PTTL', KEYS[i])
    longest = hold == -1 and math.huge or math.max(longest, hold)
end
life = life == -1 and math.huge or life
if most and (#KEYS > 1 and math.min(life, longest) or life) > most then
    return 0
end

-- Caught and returned, an error reads the same from every version of Redis.
local removed = redis.pcall('HDEL', key, field)
if type(removed) == 'table' then
    return string.sub(removed.err, 1, 9) == 'WRONGTYPE' and 0 or removed
elseif removed == 0 then
    return 0
end
for i = 2, #KEYS do
    redis.call('DEL', KEYS[i])
end

-- Redis deletes an empty hash. That of a read-write lock is empty but for its mode; and of a writer that was a reader,
-- too, the reader stays.
local mode = redis.call('HGET', key, 'mode')
if mode and redis.call('HLEN', key) == 1 then
    redis.call('DEL', key)
elseif mode == 'write' and string.sub(field, -6) == ':write' then
    redis.call('HSET', key, 'mode', 'read')
end
return 1
