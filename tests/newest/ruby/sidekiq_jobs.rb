# Sidekiq as a whole: a worker process of its own, with its default settings. The program and its worker are both this file.
ENV['TESTED_URL'] ||= "redis://#{ARGV[0]}:#{ARGV[1]}/0"

require 'sidekiq'
require 'sidekiq/api'

PATIENCE = 60

# All clients are threads of this process, more than its pool is made for.
Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch('TESTED_URL'), size: 30, pool_timeout: PATIENCE } }
Sidekiq.configure_server do |config|
  config.redis = { url: ENV.fetch('TESTED_URL') }
  # Its default is fifteen seconds until it looks at jobs of later for the first time.
  config.average_scheduled_poll_interval = 1
end

# What a job has come to is in Redis, as its program cannot see it otherwise.
def tell(key, text)
  Sidekiq.redis { |client| client.rpush("#{key}:done", text) }
end

class Double
  include Sidekiq::Worker
  sidekiq_options queue: 'tested'

  def perform(key, number)
    tell(key, number * 2)
  end
end

class FailsOnce
  include Sidekiq::Worker
  sidekiq_options queue: 'tested', retry: 3
  sidekiq_retry_in { 1 }

  def perform(key)
    tries = Sidekiq.redis { |client| client.incr("#{key}:tries") }
    raise 'not yet' if tries == 1

    tell(key, "at try #{tries}")
  end
end

class Fails
  include Sidekiq::Worker
  sidekiq_options queue: 'tested', retry: 0
  sidekiq_retries_exhausted { |job, _error| tell(job['args'][0], 'exhausted') }

  def perform(_key)
    raise 'always'
  end
end

def wait_until
  last = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
  sleep 0.02 until yield || Process.clock_gettime(Process::CLOCK_MONOTONIC) > last
end

def jobs(key)
  Double.perform_async(key, 1)
  Double.perform_in(1, key, 2)
  Sidekiq::Client.push_bulk('class' => Double, 'args' => [[key, 3], [key, 4], [key, 5]])
  FailsOnce.perform_async(key)
  Fails.perform_async(key)
  done = []
  wait_until do
    done = Sidekiq.redis { |client| client.lrange("#{key}:done", 0, -1) }
    done.size >= 7
  end
  # What it says of its workers is in Redis until it says so again.
  rests = [Sidekiq::Workers.new, Sidekiq::RetrySet.new, Sidekiq::ScheduledSet.new, Sidekiq::Queue.new('tested')]
  wait_until { rests.all? { |rest| rest.size.zero? } }
  [done.sort, rests.map(&:size)]
end

def outcome(key)
  jobs(key).map { |reply| "reply #{reply.inspect}" }
rescue StandardError => error
  ["error #{error.class}: #{error.message}".tr("\n", ' ')]
end

def serve(count)
  puts "version #{Sidekiq::VERSION}", 'ready'
  $stdin.each_line do |line|
    _, name, = line.split
    keys = Array.new(count) { |number| "newest:#{name}:#{number}" }
    puts name == 'jobs' ? keys.map { |key| Thread.new { outcome(key) } }.map(&:value).flatten : 'unsupported', 'done'
  end
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  Sidekiq.redis(&:ping)
  worker = spawn('sidekiq', '--require', File.expand_path(__FILE__), '--queue', 'tested', out: $stderr)
  begin
    wait_until { Sidekiq::ProcessSet.new.size.positive? }
    serve(ARGV[2].to_i)
  ensure
    Process.kill('TERM', worker)
    Process.wait(worker)
  end
end
