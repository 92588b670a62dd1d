-- Renews a lock that is a hash with a field for each owner: Redisson's and its family. It proves first that the owner
-- still has its field, never creates a key, never shortens a time to live, and defers to an owner that renews by
-- itself.
-- All readers of a read-write lock share the hash, which lives as long as the longest of their holds. How long one of
-- them has the lock say its own holds, each a key with a lease of its own: the longest of those that are left counts,
-- or the hash if that ends sooner. Holds that have run out are not brought back, and a reader that has none left has
-- lost the lock, even while others keep the hash.
-- KEYS: the hash; for a read lock also the owner's holds ({name}:<owner>:rwlock_timeout:<n>), whether they exist or not
-- ARGV: field, lease in ms (1: it is only looked at), expected in ms (what the time to live ought to be now if nobody touched it;
--       below 0: it ought to be over), slack in ms (by how much it may differ from that either way)
-- Reply: {code, PTTL}
--         1: renewed: it has the lease, or more
--         2: deferred: its time to live is longer than expected
--         0: gone: there is no such key, or holds were named and none of them is left
--        -1: others have it: the hash has no such field
--        -2: it or a hold has no time to live: somebody made it persistent
--        -3: its time to live is shorter than expected: somebody shortened it
--        -4: it or a hold is of another type
-- Complexity: O(keys)
local key, field = KEYS[1], ARGV[1]

local function whole(text, least)
    local number = tonumber(text)
    return number and number >= least and number <= 2 ^ 53 and number % 1 == 0 and number
end

-- PEXPIRE with less than 1 would delete the key.
local lease, expected, slack = whole(ARGV[2], 1), whole(ARGV[3], -2 ^ 53), whole(ARGV[4], 0)
if not (key and lease and expected and slack) then
    return redis.error_reply('HEADGATE no key, or lease, expected or slack out of range')
end

local function is_of_another_type(reply)
    return type(reply) == 'table' and string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end

-- Caught and returned, an error reads the same from every version of Redis.
local owned = redis.pcall('HEXISTS', key, field)
local life = redis.call('PTTL', key)
if is_of_another_type(owned) then
    return {-4, life}
elseif type(owned) == 'table' then
    return owned
elseif life == -2 then
    return {0, life}
elseif owned == 0 then
    return {-1, life}
elseif life < 0 then
    return {-2, life}
end

local lives, longest = {life}, -2
for i = 2, #KEYS do
    local hold = redis.pcall('GET', KEYS[i])
    lives[i] = redis.call('PTTL', KEYS[i])
    if is_of_another_type(hold) then
        return {-4, lives[i]}
    elseif type(hold) == 'table' then
        return hold
    elseif lives[i] == -1 then
        return {-2, -1}
    end
    longest = math.max(longest, lives[i])
end
if #KEYS > 1 then
    if longest == -2 then
        return {0, -2}
    end
    life = math.min(life, longest)
end
if life < expected - slack then
    return {-3, life}
elseif life > expected + slack then
    return {2, life}
end

for i, name in ipairs(KEYS) do
    if lease > 1 and lives[i] ~= -2 and lives[i] < lease then
        redis.call('PEXPIRE', name, string.format('%.0f', lease))
    end
end
return {1, lease > 1 and math.max(life, lease) or life}
