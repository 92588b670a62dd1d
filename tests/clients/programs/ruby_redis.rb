# Exercises ruby-redis: HOST PORT DRIVER. Prints "fine" at its end.
require 'redis'

HOST = ARGV[0]
PORT = ARGV[1].to_i
DRIVER = ARGV[2].to_sym

def connect(**options)
  Redis.new(host: HOST, port: PORT, driver: DRIVER, timeout: 10, reconnect_attempts: 0, **options)
end

def check(condition, what)
  raise "failed: #{what}" unless condition
end

redis = connect(id: 'ruby-client')
redis.flushall
check(redis.call('client', 'getname') == 'ruby-client', 'name')
binary = (0..255).to_a.pack('C*') * 5000
check(redis.set('k', binary) == 'OK', 'set')
check(redis.get('k').b == binary, 'get')
check(redis.get('none').nil?, 'nil')

replies = redis.pipelined { |pipeline| 1000.times { |i| pipeline.set("k#{i}", i); pipeline.get("k#{i}") } }
check(replies.each_slice(2).with_index.all? { |(set, get), i| set == 'OK' && get == i.to_s }, 'pipeline')

result = redis.multi { |multi| multi.set('m', 1); multi.incr('m') }
check(result == ['OK', 2], 'multi')

other = connect
redis.watch('watched') do
  other.set('watched', 'theirs')
  check(redis.multi { |multi| multi.set('watched', 'mine') }.nil?, 'watch conflict')
end

waiter = Thread.new { connect.blpop('list', timeout: 5) }
sleep 0.1
other.rpush('list', 'v')
check(waiter.value == %w[list v], 'blpop')

received = []
subscriber = Thread.new do
  connect.subscribe('a', 'b') do |on|
    on.message do |channel, message|
      received << [channel, message]
      Thread.current[:redis] = nil
      raise StopIteration if message == 'last'
    end
  end
rescue StopIteration
  nil
end
sleep 0.01 until other.pubsub('numsub', 'b') == ['b', 1]
other.publish('a', 'first')
other.publish('b', 'last')
check(!subscriber.join(10).nil?, 'subscriber ends')
check(received == [%w[a first], %w[b last]], 'messages')

second = connect(db: 2)
second.set('k', 'in 2')
check(redis.get('k').b == binary, 'databases')
check(redis.eval('return {KEYS[1], ARGV[1]}', keys: ['x'], argv: ['y']) == %w[x y], 'eval')
begin
  redis.call('nonsense')
  check(false, 'an error')
rescue Redis::CommandError => e
  check(e.message.include?('unknown command'), 'error text')
end
check(redis.scan_each(match: 'k9*').count == 111, 'scan')
redis.quit
puts 'fine'
