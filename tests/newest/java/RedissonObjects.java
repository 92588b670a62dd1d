// Redisson's objects, with its default numbers of connections.
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RBatch;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RClientSideCaching;
import org.redisson.api.RFuture;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RScript;
import org.redisson.api.RTopic;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.options.ClientSideCachingOptions;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

public final class RedissonObjects {
    private static final String ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
    private static String address;

    private static final Map<String, RTopic> SUBSCRIPTIONS = new ConcurrentHashMap<>();
    private static final Map<String, BlockingQueue<String>> CAME = new ConcurrentHashMap<>();

    private static Config config() {
        // Twenty clients of one process need not have all the threads of one.
        return new Config().setThreads(2).setNettyThreads(2).setCodec(StringCodec.INSTANCE);
    }

    private static RedissonClient connect() {
        Config config = config();
        config.useSingleServer().setAddress(address);
        return Redisson.create(config);
    }

    /** For a moment: without the connections that it would keep ready. */
    private static RedissonClient connectOnce(Config config, Consumer<SingleServerConfig> change) {
        SingleServerConfig server = config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1)
            .setSubscriptionConnectionMinimumIdleSize(1);
        change.accept(server);
        return Redisson.create(config);
    }

    private static void end(RedissonClient own) {
        own.shutdown(0, 100, TimeUnit.MILLISECONDS);
    }

    /** Without the address of the connection, and of the command. */
    private static String told(Exception error) {
        return error.getMessage().replaceAll("(?s)\\. channel:.*|[;:] ?\\[?(address|addr|node).*", "");
    }

    private static void strings(RedissonClient client, String key, Consumer<Object> tell) {
        client.getBucket(key).set("first");
        tell.accept(client.getBucket(key).get());
        tell.accept(client.getBucket(key + ":none").get());
        tell.accept(client.getAtomicLong(key + ":count").addAndGet(3));
        tell.accept(client.getBucket(key).compareAndSet("first", "second"));
        tell.accept(client.getKeys().countExists(key, key + ":none"));
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

    /** RESP2 and RESP3, a name, a user with a password, another database, a wrong password. */
    private static void greeting(RedissonClient client, String key, Consumer<Object> tell) {
        List<Consumer<SingleServerConfig>> ways = List.of(
            server -> server.setClientName("tested"),
            server -> server.setDatabase(3),
            server -> server.setUsername("tested").setPassword("secret"),
            server -> server.setUsername("tested").setPassword("wrong").setRetryAttempts(0));
        for (org.redisson.config.Protocol protocol : org.redisson.config.Protocol.values()) {
            for (Consumer<SingleServerConfig> way : ways) {
                RedissonClient own;
                try {
                    own = connectOnce(config().setProtocol(protocol), way);
                } catch (RedisException error) {
                    tell.accept("refused");
                    continue;
                }
                own.getBucket(key).set("mine");
                tell.accept(own.getBucket(key).get() + " " + client.getBucket(key).get());
                client.getBucket(key).delete();
                end(own);
            }
        }
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

    private static void hear(RTopic topic, String key, Consumer<Object> tell) throws Exception {
        BlockingQueue<String> came = new ArrayBlockingQueue<>(10);
        topic.addListener(String.class, (channel, message) -> came.add(channel + " " + message));
        tell.accept(topic.publish("hello"));
        tell.accept(came.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        SUBSCRIPTIONS.put(key, topic);
        CAME.put(key, came);
    }

    private static void subscribe(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        hear(client.getTopic(key), key, tell);
    }

    private static void unsubscribe(RedissonClient client, String key, Consumer<Object> tell) {
        String channel = key.replace("unsubscribe", "subscribe");
        SUBSCRIPTIONS.get(channel).removeAllListeners();
        tell.accept(client.getTopic(channel).publish("nobody hears it"));
        tell.accept(CAME.get(channel).size());
    }

    /** It caches in RESP3 only. */
    private static void caching(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        RedissonClient own = connectOnce(config().setProtocol(org.redisson.config.Protocol.RESP3), server -> { });
        RClientSideCaching caching = own.getClientSideCaching(ClientSideCachingOptions.defaults());
        RBucket<String> bucket = caching.getBucket(key);
        client.getBucket(key).set("old");
        for (int number = 0; number < 3; number++) {
            tell.accept(bucket.get());
        }
        client.getBucket(key).set("new");
        tell.accept(Protocol.until(bucket::get, "new"));
        caching.destroy();
        end(own);
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

    /** It learns where the slots are, and goes to the node of each key. */
    private static void clusterMode(RedissonClient client, String key, Consumer<Object> tell) throws Exception {
        Config config = config();
        config.useClusterServers().addNodeAddress(address).setMasterConnectionMinimumIdleSize(1)
            .setSubscriptionConnectionMinimumIdleSize(1);
        RedissonClient own = Redisson.create(config);
        String[] names = new String[20];
        for (int number = 0; number < names.length; number++) {
            names[number] = key + ":" + number;
            own.getBucket(names[number]).set("value " + number);
            tell.accept(own.getBucket(names[number]).get());
        }
        RBatch batch = own.createBatch();
        for (String name : names) {
            batch.getBucket(name).getAsync();
        }
        tell.accept(batch.execute().getResponses());
        transaction(own, "{" + key + "}a", tell);
        script(own, "{" + key + "}b", tell);
        tell.accept(own.getBlockingQueue("{" + key + "}c").poll(1, TimeUnit.SECONDS));
        tell.accept(new TreeMap<>(own.getBuckets().get(names)));
        hear(own.getShardedTopic(key), key, tell);
        tell.accept(own.getKeys().delete(names));
        end(own);
    }

    public static void main(String[] arguments) throws Exception {
        address = (System.getenv("TESTED_BY_TLS") != null ? "rediss://" : "redis://") + arguments[0] + ":" + arguments[1];
        Map<String, Protocol.Feature<RedissonClient>> features = new HashMap<>();
        features.put("strings", RedissonObjects::strings);
        features.put("pipeline", RedissonObjects::pipeline);
        features.put("transaction", RedissonObjects::transaction);
        features.put("script", RedissonObjects::script);
        features.put("greeting", RedissonObjects::greeting);
        features.put("subscribe", RedissonObjects::subscribe);
        features.put("unsubscribe", RedissonObjects::unsubscribe);
        features.put("caching", RedissonObjects::caching);
        features.put("cluster_mode", RedissonObjects::clusterMode);
        features.put("concurrent", RedissonObjects::concurrent);
        features.put("blocking", RedissonObjects::blocking);
        features.put("limits", RedissonObjects::limits);
        features.put("killed", RedissonObjects::killed);
        Protocol.serve(Protocol.versionOf(Redisson.class), Integer.parseInt(arguments[2]), RedissonObjects::connect, features,
            RedissonClient::shutdown);
    }
}
