-- Exercises lua-redis (nrk): HOST PORT. Prints "fine" at its end.
local redis = require 'redis'

local function connect()
    return redis.connect(arg[1], tonumber(arg[2]))
end

local client = connect()
client:flushall()
local value = string.rep('binary\0\r\n', 20000)
assert(client:set('k', value))
assert(client:get('k') == value)
assert(client:get('none') == nil)

local replies = client:pipeline(function(pipeline)
    for number = 1, 500 do
        pipeline:set('k' .. number, number)
        pipeline:get('k' .. number)
    end
end)
for number = 1, 500 do
    assert(replies[2 * number - 1] and replies[2 * number] == tostring(number))
end

local results = client:transaction(function(transaction)
    transaction:set('m', 1)
    transaction:incr('m')
end)
assert(results[2] == 2)

local other = connect()
other:select(2)
other:set('k', 'in 2')
assert(client:get('k') == value)
client:rpush('list', 'v')
local popped = client:blpop('list', 5)
assert(popped[1] == 'list' and popped[2] == 'v')

local seen = {}
for message, abort in connect():pubsub({ subscribe = { 'a', 'b' } }) do
    if message.kind == 'subscribe' and message.channel == 'b' then
        client:publish('a', 'first')
        client:publish('b', 'last')
    elseif message.kind == 'message' then
        table.insert(seen, message.channel .. '=' .. message.payload)
        if message.payload == 'last' then
            abort()
        end
    end
end
assert(table.concat(seen, ' ') == 'a=first b=last')

local worked, failure = pcall(client.raw_cmd, client, 'NONSENSE\r\n')
assert(not worked and tostring(failure):find('unknown command'))
client:quit()
print('fine')
