-- Renews a permit of a semaphore that is a sorted set: raises its score, be that when it was taken or when it ends. It
-- proves first that the permit is still there with the score that it ought to have, never adds one, never lowers a
-- score, never shortens the key's time to live and gives none to a key without, and defers to an owner that renews by
-- itself.
-- Scores are reckoned by the caller, from the client's own, so that the client's clock and unit stay what they are.
-- KEYS: the sorted set
-- ARGV: member, new score, expected score (what it ought to be if nobody touched it), lease in ms (the least time to
--       live that the key has afterwards, if it has any; 1: it is not touched), and other members: of those that have the
--       expected score, too, the score is raised along
-- Reply: {code, PTTL}, or {2, PTTL, high, low}; the PTTL is the key's: -1 if it has no time to live
--         1: renewed: it has the new score, or the expected if that is higher
--         2: deferred: its score is another than expected; high and low are the halves, 32 bits without a sign each, of
--            the IEEE 754 double that it is
--         0: gone: there is no such key
--        -1: others have it: the key has no such member
--        -4: it is of another type
-- Complexity: O(others * log(members))
local key, member = KEYS[1], ARGV[1]

-- Neither infinite nor NaN, of which no comparison is true.
local function finite(text)
    local number = tonumber(text)
    return number and math.abs(number) < math.huge and number
end

-- PEXPIRE with less than 1 would delete the key.
local score, expected, lease = finite(ARGV[2]), finite(ARGV[3]), finite(ARGV[4])
if not (key and score and expected and lease and lease >= 1 and lease <= 2 ^ 53 and lease % 1 == 0) then
    return redis.error_reply('HEADGATE no key, or score, expected or lease out of range')
end

-- Caught and returned, an error reads the same from every version of Redis.
local found = redis.pcall('ZSCORE', key, member)
local life = redis.call('PTTL', key)
if type(found) == 'table' then
    return string.sub(found.err, 1, 9) == 'WRONGTYPE' and {-4, life} or found
elseif life == -2 then
    return {0, life}
elseif not found then
    return {-1, life}
elseif tonumber(found) ~= expected then
    local high, low = struct.unpack('>I4I4', struct.pack('>d', tonumber(found)))
    return {2, life, high, low}
end

if score > expected then
    local raised = {string.format('%.17g', score), member}
    for i = 5, #ARGV do
        if tonumber(redis.call('ZSCORE', key, ARGV[i]) or '') == expected then
            raised[#raised + 1], raised[#raised + 2] = raised[1], ARGV[i]
        end
    end
    local added = redis.pcall('ZADD', key, 'XX', unpack(raised))
    -- Redis that is out of memory refuses it, as it could add members, unless the script has written before. What is
    -- written here changes nothing: it removes what is not there. If that is refused, too, nothing was changed.
    if type(added) == 'table' and string.find(added.err, 'OOM', 1, true) then
        local nobody = member
        repeat
            nobody = nobody .. '-'
        until not redis.call('ZSCORE', key, nobody)
        redis.pcall('ZREM', key, nobody)
        added = redis.pcall('ZADD', key, 'XX', unpack(raised))
    end
    if type(added) == 'table' then
        return added
    end
end
if lease > 1 and life >= 0 and life < lease then
    redis.call('PEXPIRE', key, string.format('%.0f', lease))
    life = lease
end
return {1, life}
