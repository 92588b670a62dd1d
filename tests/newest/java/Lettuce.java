// Lettuce with its default settings.
import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

public final class Lettuce {
    private static final String ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
    private static final Map<String, Subscription> SUBSCRIPTIONS = new ConcurrentHashMap<>();
    private static RedisClient library;
    private static RedisURI uri;

    private static final class Subscription extends RedisPubSubAdapter<String, String> {
        final BlockingQueue<String> events = new ArrayBlockingQueue<>(10);
        final StatefulRedisPubSubConnection<String, String> connection = library.connectPubSub();

        Subscription() {
            connection.addListener(this);
        }

        @Override
        public void subscribed(String channel, long count) {
            events.add("subscribed " + channel + " " + count);
        }

        @Override
        public void message(String channel, String message) {
            events.add("message " + channel + " " + message);
        }

        @Override
        public void unsubscribed(String channel, long count) {
            events.add("unsubscribed " + channel + " " + count);
        }

        String next() throws InterruptedException {
            return events.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static void strings(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) {
        RedisCommands<String, String> client = connection.sync();
        tell.accept(client.set(key, "first"));
        tell.accept(client.get(key));
        tell.accept(client.get(key + ":none"));
        for (int number = 0; number < 3; number++) {
            tell.accept(client.incr(key + ":count"));
        }
        tell.accept(client.set(key + ":timed", "second", SetArgs.Builder.ex(1000)));
        tell.accept(client.mget(key, key + ":timed", key + ":none"));
    }

    private static void pipeline(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell)
            throws Exception {
        List<RedisFuture<?>> futures = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            futures.add(connection.async().rpush(key, String.valueOf(number)));
        }
        futures.add(connection.async().lrange(key, 0, -1));
        for (RedisFuture<?> future : futures) {
            tell.accept(future.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    private static void transaction(StatefulRedisConnection<String, String> connection, String key,
            Consumer<Object> tell) {
        RedisCommands<String, String> client = connection.sync();
        client.multi();
        client.set(key, "1");
        client.incr(key);
        client.get(key);
        tellAll(client.exec(), tell);
    }

    private static void tellAll(TransactionResult result, Consumer<Object> tell) {
        tell.accept(result.wasDiscarded());
        result.forEach(tell);
    }

    private static void watch(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) {
        RedisCommands<String, String> client = connection.sync();
        client.set(key, "5");
        tell.accept(client.watch(key));
        int value = Integer.parseInt(client.get(key));
        client.multi();
        client.set(key, String.valueOf(value * 2));
        client.get(key);
        tellAll(client.exec(), tell);
    }

    private static void script(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) {
        RedisCommands<String, String> client = connection.sync();
        String digest = client.scriptLoad(ADD);
        for (String number : List.of("7", "8")) {
            tell.accept(client.<List<Object>>evalsha(digest, ScriptOutputType.MULTI, new String[] {key}, number));
        }
    }

    /**
     * What the server has said. Lettuce closes a connection that is refused, and its caller hears of that, or that a
     * handler is gone, where it is seen first: then it is tried again.
     */
    private static String refusal(RedisClient client, RedisURI way, String first) {
        String message = first;
        for (int tries = 1; tries < 20 && !message.startsWith("WRONGPASS"); tries++) {
            try (StatefulRedisConnection<String, String> own = client.connect(way)) {
                return "not refused";
            } catch (RedisException error) {
                message = error.getCause().getMessage();
            }
        }
        return message;
    }

    /** Every way to begin a connection: RESP, names, users, databases, wrong passwords. */
    private static void greeting(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) {
        List<RedisURI> ways = List.of(uri, RedisURI.builder(uri).withDatabase(3).build(),
            RedisURI.builder(uri).withClientName("tested").build(),
            RedisURI.builder(uri).withAuthentication("tested", "secret").build(),
            RedisURI.builder(uri).withAuthentication("tested", "wrong").build());
        for (ProtocolVersion version : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            RedisClient other = RedisClient.create();
            other.setOptions(ClientOptions.builder().protocolVersion(version).build());
            for (RedisURI way : ways) {
                try (StatefulRedisConnection<String, String> own = other.connect(way)) {
                    RedisCommands<String, String> client = own.sync();
                    tell.accept(client.set(key, "mine " + version));
                    tell.accept(client.get(key) + connection.sync().get(key) + client.clientGetname() + client.aclWhoami());
                } catch (RedisException error) {
                    tell.accept(refusal(other, way, error.getCause().getMessage()));
                }
            }
            other.shutdown(0, 2, TimeUnit.SECONDS);
        }
    }

    /** One connection in many threads: what they ask goes out in one pipeline. */
    private static void concurrent(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) throws Exception {
        try (StatefulRedisConnection<String, String> own = library.connect()) {
            List<RedisFuture<String>> replies = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                replies.add(own.async().set(key + ":" + number, "number " + number));
                replies.add(own.async().get(key + ":" + number));
            }
            for (RedisFuture<String> reply : replies) {
                tell.accept(reply.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
            }
        }
    }

    /** What comes after a reply that nobody waits for any more is the right one. */
    private static void timeouts(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) throws Exception {
        try (StatefulRedisConnection<String, String> own = library.connect()) {
            own.setTimeout(Duration.ofMillis(500));
            try {
                tell.accept(own.sync().blpop(1, key));
            } catch (RedisCommandTimeoutException late) {
                tell.accept("timed out");
            }
            own.setTimeout(Duration.ofSeconds(Protocol.PATIENCE_SECONDS));
            tell.accept(own.sync().set(key + ":after", "mine") + own.sync().get(key + ":after"));
        }
    }

    /** Until the server has been killed and is there again, without its data. */
    private static void killed(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) throws Exception {
        RedisCommands<String, String> client = connection.sync();
        client.set(key, "before");
        tell.accept(Protocol.untilLost(() -> client.get(key) == null));
        tell.accept(client.set(key + ":after", "there") + client.get(key + ":after") + client.get(key));
    }

    private static void blocking(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell)
            throws Exception {
        RedisCommands<String, String> client = connection.sync();
        tell.accept(client.blpop(1, key));
        client.rpush(key, "there");
        tell.accept(client.blpop(1, key));
        try (StatefulRedisConnection<String, String> other = library.connect()) {
            RedisFuture<KeyValue<String, String>> waiting =
                connection.async().blpop(Protocol.PATIENCE_SECONDS, key);
            Thread.sleep(100);
            other.sync().rpush(key, "pushed");
            tell.accept(waiting.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
    }

    private static void subscribe(StatefulRedisConnection<String, String> connection, String key,
            Consumer<Object> tell) throws Exception {
        Subscription subscription = new Subscription();
        SUBSCRIPTIONS.put(key, subscription);
        subscription.connection.sync().subscribe(key);
        tell.accept(subscription.next());
        tell.accept(connection.sync().publish(key, "hello"));
        tell.accept(subscription.next());
    }

    private static void unsubscribe(StatefulRedisConnection<String, String> connection, String key,
            Consumer<Object> tell) throws Exception {
        String channel = key.replace("unsubscribe", "subscribe");
        Subscription subscription = SUBSCRIPTIONS.remove(channel);
        subscription.connection.sync().unsubscribe(channel);
        tell.accept(subscription.next());
        subscription.connection.close();
    }

    private static void caching(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell)
            throws Exception {
        connection.sync().set(key, "old");
        Map<String, String> cache = new ConcurrentHashMap<>();
        StatefulRedisConnection<String, String> cached = library.connect();
        CacheFrontend<String, String> front = ClientSideCaching.enable(CacheAccessor.forMap(cache), cached,
            TrackingArgs.Builder.enabled());
        for (int number = 0; number < 3; number++) {
            tell.accept(front.get(key));
        }
        tell.accept(cache);
        connection.sync().set(key, "new");
        tell.accept(Protocol.until(() -> front.get(key), "new"));
        front.close();
    }

    /** It learns where the slots are, and goes to the node of each key. */
    private static void clusterMode(StatefulRedisConnection<String, String> connection, String key, Consumer<Object> tell) {
        String tag = "{" + key + "}";
        RedisClusterClient cluster = RedisClusterClient.create(uri);
        try (StatefulRedisClusterConnection<String, String> own = cluster.connect()) {
            Map<String, String> all = new TreeMap<>();
            for (int number = 0; number < 20; number++) {
                all.put(key + ":" + number, "there");
            }
            tell.accept(own.sync().mset(all));
            tell.accept(own.sync().mget(all.keySet().toArray(new String[0])));
            List<String> found = own.sync().keys(key + ":*");
            tell.accept(new TreeSet<>(found));
            String[] keys = {tag + "b"};
            tell.accept(own.sync().<List<Object>>eval(ADD, ScriptOutputType.MULTI, keys, "7"));
            tell.accept(own.sync().blpop(1, tag + "c"));
            tell.accept(own.sync().del(all.keySet().toArray(new String[0])));
        }
        cluster.shutdown(0, 2, TimeUnit.SECONDS);
    }

    public static void main(String[] arguments) throws Exception {
        String scheme = System.getenv("TESTED_BY_TLS") != null ? "rediss://" : "redis://";
        uri = RedisURI.create(scheme + arguments[0] + ":" + arguments[1]);
        library = RedisClient.create(uri);
        Map<String, Protocol.Feature<StatefulRedisConnection<String, String>>> features = new HashMap<>();
        features.put("strings", Lettuce::strings);
        features.put("pipeline", Lettuce::pipeline);
        features.put("transaction", Lettuce::transaction);
        features.put("watch", Lettuce::watch);
        features.put("script", Lettuce::script);
        features.put("blocking", Lettuce::blocking);
        features.put("subscribe", Lettuce::subscribe);
        features.put("unsubscribe", Lettuce::unsubscribe);
        features.put("caching", Lettuce::caching);
        features.put("greeting", Lettuce::greeting);
        features.put("concurrent", Lettuce::concurrent);
        features.put("timeouts", Lettuce::timeouts);
        features.put("killed", Lettuce::killed);
        features.put("cluster_mode", Lettuce::clusterMode);
        Protocol.serve(Protocol.versionOf(RedisClient.class), Integer.parseInt(arguments[2]), library::connect,
            features, StatefulRedisConnection::close);
    }
}
