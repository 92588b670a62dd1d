// Redisson's objects, with its default numbers of connections.
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RBatch;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RScript;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public final class RedissonObjects {
    private static final String ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
    private static String address;

    private static RedissonClient connect() {
        Config config = new Config();
        // Twenty clients of one process need not have all the threads of one.
        config.setThreads(2).setNettyThreads(2).setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(address);
        return Redisson.create(config);
    }

    private static void strings(RedissonClient client, String key, Consumer<Object> tell) {
        client.getBucket(key).set("first");
        tell.accept(client.getBucket(key).get());
        tell.accept(client.getBucket(key + ":none").get());
        tell.accept(client.getAtomicLong(key + ":count").addAndGet(3));
        tell.accept(client.getBucket(key).compareAndSet("first", "second"));
        tell.accept(client.getKeys().countExists(key, key + ":none"));
    }

    private static void hashes(RedissonClient client, String key, Consumer<Object> tell) {
        RMap<String, String> map = client.getMap(key);
        tell.accept(map.put("one", "1"));
        tell.accept(map.putIfAbsent("one", "2"));
        tell.accept(map.put("two", "2"));
        tell.accept(new TreeMap<>(map.readAllMap()));
        tell.accept(map.replace("two", "2", "3"));
    }

    private static void lists(RedissonClient client, String key, Consumer<Object> tell) {
        tell.accept(client.getList(key).addAll(List.of("a", "b", "c")));
        tell.accept(client.getList(key).readAll());
        tell.accept(client.getList(key).remove(0));
    }

    private static void sortedSets(RedissonClient client, String key, Consumer<Object> tell) {
        RScoredSortedSet<String> set = client.getScoredSortedSet(key);
        tell.accept(set.add(1.5, "a"));
        tell.accept(set.addScoreAndGetRank("b", 2));
        tell.accept(set.readAll());
    }

    private static void batch(RedissonClient client, String key, BatchOptions options, Consumer<Object> tell) {
        RBatch batch = client.createBatch(options);
        for (int number = 0; number < 50; number++) {
            batch.getList(key).addAsync("" + number);
        }
        batch.getList(key).readAllAsync();
        tell.accept(batch.execute().getResponses());
    }

    private static void pipeline(RedissonClient client, String key, Consumer<Object> tell) {
        batch(client, key, BatchOptions.defaults(), tell);
    }

    private static void transaction(RedissonClient client, String key, Consumer<Object> tell) {
        batch(client, key, BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC), tell);
    }

    private static void script(RedissonClient client, String key, Consumer<Object> tell) {
        for (String number : List.of("7", "8")) {
            tell.accept(client.getScript().<Object>eval(RScript.Mode.READ_WRITE, ADD, RScript.ReturnType.LIST,
                List.of(key), number));
        }
    }

    private static void big(RedissonClient client, String key, Consumer<Object> tell) {
        String value = "headgate".repeat(131072);
        client.getBucket(key).set(value);
        tell.accept(client.getBucket(key).get().equals(value));
    }

    /** What is asked at once shares connections of the pool. */
    private static void concurrent(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        List<RFuture<Object>> replies = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            client.getBucket(key + ":" + number).setAsync("number " + number).get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS);
            replies.add(client.getBucket(key + ":" + number).getAsync());
        }
        for (RFuture<Object> reply : replies) {
            tell.accept(reply.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    private static void blocking(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        RBlockingQueue<String> queue = client.getBlockingQueue(key);
        tell.accept(queue.poll(1, TimeUnit.SECONDS));
        RFuture<String> waiting = queue.pollAsync(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS);
        Thread.sleep(100);
        tell.accept(client.getQueue(key).offer("pushed"));
        tell.accept(waiting.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private static void patterns(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        BlockingQueue<String> came = new ArrayBlockingQueue<>(10);
        RTopic topic = client.getTopic(key + ":one");
        int plain = topic.addListener(String.class, (channel, message) -> came.add(channel + " " + message));
        tell.accept(topic.publish("hello"));
        tell.accept(came.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        topic.removeListener(plain);
        int pattern = client.getPatternTopic(key + ":*").addListener(String.class,
            (text, channel, message) -> came.add(text + " " + channel + " " + message));
        tell.accept(topic.publish("there"));
        tell.accept(came.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        client.getPatternTopic(key + ":*").removeListener(pattern);
    }

    private static void locks(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        RLock lock = client.getLock(key);
        lock.lock();
        tell.accept(lock.tryLock() + " " + lock.getHoldCount());
        lock.unlock();
        Thread rival = new Thread(() -> {
            lock.lock(10, TimeUnit.SECONDS);
            lock.unlock();
        });
        rival.start();
        Thread.sleep(100);
        tell.accept("unlocking");
        lock.unlock();
        rival.join();
        tell.accept(lock.isLocked());

        RLock fair = client.getFairLock(key + ":fair");
        tell.accept(fair.tryLock(1, 10, TimeUnit.SECONDS));
        fair.unlock();

        RSemaphore semaphore = client.getSemaphore(key + ":semaphore");
        tell.accept(semaphore.trySetPermits(2));
        tell.accept(semaphore.tryAcquire(2) + " " + semaphore.tryAcquire());
        Thread giver = new Thread(() -> semaphore.release(2));
        giver.start();
        tell.accept(semaphore.tryAcquire(java.time.Duration.ofSeconds(Protocol.PATIENCE_SECONDS)));
        giver.join();

        RCountDownLatch latch = client.getCountDownLatch(key + ":latch");
        latch.trySetCount(1);
        new Thread(latch::countDown).start();
        tell.accept(latch.await(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private static void limits(RedissonClient client, String key, Consumer<Object> tell) {
        RRateLimiter limiter = client.getRateLimiter(key);
        tell.accept(limiter.trySetRate(RateType.OVERALL, 5, 1, RateIntervalUnit.HOURS));
        for (int number = 0; number < 7; number++) {
            tell.accept(limiter.tryAcquire());
        }
        tell.accept(limiter.availablePermits());
    }

    private static void killed(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        client.getBucket(key).set("before");
        tell.accept(Protocol.untilLost(() -> client.getBucket(key).get() == null));
        client.getBucket(key + ":after").set("there");
        tell.accept(client.getBucket(key + ":after").get());
    }

    public static void main(String[] arguments) throws Exception {
        address = (System.getenv("TESTED_BY_TLS") != null ? "rediss://" : "redis://") + arguments[0] + ":" + arguments[1];
        Map<String, Protocol.Feature<RedissonClient>> features = new HashMap<>();
        features.put("strings", RedissonObjects::strings);
        features.put("hashes", RedissonObjects::hashes);
        features.put("lists", RedissonObjects::lists);
        features.put("sorted_sets", RedissonObjects::sortedSets);
        features.put("pipeline", RedissonObjects::pipeline);
        features.put("transaction", RedissonObjects::transaction);
        features.put("script", RedissonObjects::script);
        features.put("big", RedissonObjects::big);
        features.put("concurrent", RedissonObjects::concurrent);
        features.put("blocking", RedissonObjects::blocking);
        features.put("patterns", RedissonObjects::patterns);
        features.put("locks", RedissonObjects::locks);
        features.put("limits", RedissonObjects::limits);
        features.put("killed", RedissonObjects::killed);
        Protocol.serve(Protocol.versionOf(Redisson.class), Integer.parseInt(arguments[2]), RedissonObjects::connect, features,
            RedissonClient::shutdown);
    }
}
