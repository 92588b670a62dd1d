# redis-rb with its default settings. scripts/clients_program.py tells what a program is asked and answers.
require 'redis'

HOST = ARGV[0]
PORT = ARGV[1].to_i
ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}".freeze
PATIENCE = 20

def connect(**options)
  options = { ssl: true, **options } if ENV['TESTED_BY_TLS']
  Redis.new(host: HOST, port: PORT, **options)
end

def wait_until
  last = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
  sleep 0.005 until yield || Process.clock_gettime(Process::CLOCK_MONOTONIC) > last
end

FEATURES = {
  'strings' => lambda do |client, key|
    [client.set(key, 'first'), client.get(key), client.get("#{key}:none"), client.incr("#{key}:count"),
     client.set("#{key}:timed", 'second', ex: 1000), client.mget(key, "#{key}:timed", "#{key}:none")]
  end,
  'pipeline' => lambda do |client, key|
    client.pipelined do |batch|
      50.times { |number| batch.rpush(key, number) }
      batch.lrange(key, 0, -1)
    end
  end,
  'transaction' => lambda do |client, key|
    client.multi do |batch|
      batch.set(key, 1)
      batch.incr(key)
      batch.get(key)
    end
  end,
  'watch' => lambda do |client, key|
    client.set(key, 5)
    own = connect
    mine = own.watch(key) do
      value = own.get(key).to_i
      own.multi { |batch| batch.set(key, value * 2) }
    end
    lost = own.watch(key) do
      client.set(key, 1)
      own.multi { |batch| batch.set(key, 2) }
    end
    own.close
    [mine, lost, client.get(key)]
  end,
  'script' => lambda do |client, key|
    digest = client.script(:load, ADD)
    [7, 8].map { |number| client.evalsha(digest, [key], [number]) }
  end,
  'greeting' => lambda do |client, key|
    ways = [{ id: 'tested' }, { db: 3 }, { username: 'tested', password: 'secret' }, { username: 'tested', password: 'wrong' }]
    ways.map do |options|
      own = connect(**options)
      begin
        own.set(key, 'mine')
        [own.get(key), client.get(key), own.call('client', 'getname'), own.call('acl', 'whoami')]
      rescue Redis::BaseError => error
        error.message
      ensure
        own.close
      end
    end
  end,
  'concurrent' => lambda do |_client, key|
    own = connect
    threads = Array.new(20) do |number|
      Thread.new { [own.set("#{key}:#{number}", number), own.get("#{key}:#{number}")] }
    end
    replies = threads.map(&:value)
    own.close
    replies
  end,
  'blocking' => lambda do |client, key|
    none = client.blpop(key, timeout: 1)
    client.rpush(key, 'there')
    there = client.blpop(key, timeout: 20)
    other = connect
    pushing = Thread.new do
      sleep 0.1
      other.rpush(key, 'pushed')
    end
    pushed = client.blpop(key, timeout: 20)
    pushing.join
    other.close
    [none, there, pushed]
  end,
  'killed' => lambda do |client, key|
    client.set(key, 'before')
    lost = 0
    wait_until do
      client.get(key).nil?
    rescue Redis::BaseError
      lost += 1
      false
    end
    ["lost=#{lost}", client.set("#{key}:after", 'there'), client.get("#{key}:after")]
  end
}.freeze

def outcome(name, client, key)
  return ['unsupported'] unless FEATURES.key?(name)

  FEATURES[name].call(client, key).map { |reply| "reply #{reply.inspect}" }
rescue StandardError => error
  ["error #{error.class}: #{error.message}".tr("\n", ' ')]
end

$stdout.sync = true
clients = Array.new(ARGV[2].to_i) { connect }
clients.each(&:ping)
puts "version #{Redis::VERSION}", 'ready'
$stdin.each_line do |line|
  _, name, at_once = line.split
  runs = clients.each_with_index.map { |client, number| [client, "newest:#{name}:#{number}"] }
  outcomes =
    if at_once == 'together'
      runs.map { |client, key| Thread.new { outcome(name, client, key) } }.map(&:value)
    else
      runs.map { |client, key| outcome(name, client, key) }
    end
  puts outcomes.flatten, 'done'
end
clients.each(&:close)
