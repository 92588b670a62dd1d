"""Rate limits that a client keeps by itself, in Redis. The same by Headgate: see test_articles.py beside."""


def sliding_window(client, key, now_ms, period_ms, most):
    with client.pipeline() as pipe:
        pipe.zadd(key, {str(now_ms): now_ms})
        pipe.zremrangebyscore(key, 0, now_ms - period_ms)
        pipe.zcard(key)
        pipe.pexpire(key, period_ms + 1000)
        return pipe.execute()[2] <= most


def recipe_sliding_window_in_the_client(place):
    client = place.connect()
    seen = [sliding_window(client, "hist:laoqian:reply", place.now * 1000 + at, 60_000, 5) for at in range(20)]
    later = [sliding_window(client, "hist:laoqian:reply", place.now * 1000 + 60_010 + at, 60_000, 5) for at in range(3)]
    return seen, later, client.zcard("hist:laoqian:reply")


FUNNEL = """
local left, leaked_ms = tonumber(ARGV[1]), tonumber(ARGV[3])
local known = redis.call('hmget', KEYS[1], 'left', 'at')
if known[1] then
    local gained = (leaked_ms - tonumber(known[2])) * tonumber(ARGV[2]) / 1000
    left = math.min(left, tonumber(known[1]) + gained)
end
local admitted = left >= 1
if admitted then left = left - 1 end
redis.call('hset', KEYS[1], 'left', tostring(left), 'at', ARGV[3])
redis.call('expire', KEYS[1], 3600)
return admitted and 1 or 0
"""


def recipe_funnel_in_the_client(place):
    client = place.connect()
    pour = client.register_script(FUNNEL)
    seen = [pour(["funnel:laoqian"], [15, 0.5, place.now * 1000 + at * 100]) for at in range(20)]
    place.now += 60
    return seen, pour(["funnel:laoqian"], [15, 0.5, place.now * 1000])
