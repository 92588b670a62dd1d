-- Forgets a limit's state: all of it is available again.
-- KEYS: the limit
-- ARGV: none
-- Reply: 1 if there was any, else 0
-- Complexity: O(1), or O(limit) for a limit that keeps each permit
return redis.call('DEL', KEYS[1])
