-- Redis' clock, which all sidecars share, and a sign that scripts work here.
-- KEYS: none
-- ARGV: none
-- Reply: microseconds since 1970 as an integer
-- Complexity: O(1)
local now = redis.call('TIME')
return now[1] * 1000000 + now[2]
