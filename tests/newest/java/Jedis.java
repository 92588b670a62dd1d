// Jedis with its default settings.
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

public final class Jedis {
    private static final String ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
    private static final Map<String, Subscription> SUBSCRIPTIONS = new ConcurrentHashMap<>();
    private static String host;
    private static int port;

    private static final class Subscription extends JedisPubSub {
        final BlockingQueue<String> events = new ArrayBlockingQueue<>(10);

        @Override
        public void onSubscribe(String channel, int count) {
            events.add("subscribed " + channel + " " + count);
        }

        @Override
        public void onMessage(String channel, String message) {
            events.add("message " + channel + " " + message);
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            events.add("subscribed " + pattern + " " + count);
        }

        @Override
        public void onPMessage(String pattern, String channel, String message) {
            events.add("message " + pattern + " " + channel + " " + message);
        }

        @Override
        public void onUnsubscribe(String channel, int count) {
            events.add("unsubscribed " + channel + " " + count);
        }

        String next() throws InterruptedException {
            return events.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
    }

    /** Asks and does not wait for the answer. */
    private static final class Waiting extends Connection {
        Waiting() {
            super(new HostAndPort(host, port), settings().build());
        }

        void pop(String key) {
            sendCommand(redis.clients.jedis.Protocol.Command.BLPOP, key, "0");
            flush();
        }
    }

    private static RedisClient connect() {
        return with(settings());
    }

    private static RedisClient with(DefaultJedisClientConfig.Builder settings) {
        return RedisClient.builder().hostAndPort(host, port).clientConfig(settings.build()).build();
    }

    private static DefaultJedisClientConfig.Builder settings() {
        return DefaultJedisClientConfig.builder().ssl(System.getenv("TESTED_BY_TLS") != null);
    }

    private static void strings(RedisClient client, String key, Consumer<Object> tell) {
        tell.accept(client.set(key, "first"));
        tell.accept(client.get(key));
        tell.accept(client.get(key + ":none"));
        for (int number = 0; number < 3; number++) {
            tell.accept(client.incr(key + ":count"));
        }
        tell.accept(client.set(key + ":timed", "second", SetParams.setParams().ex(1000)));
        tell.accept(client.mget(key, key + ":timed", key + ":none"));
    }

    private static void pipeline(RedisClient client, String key, Consumer<Object> tell) {
        try (Pipeline batch = client.pipelined()) {
            for (int number = 0; number < 50; number++) {
                batch.rpush(key, String.valueOf(number));
            }
            batch.lrange(key, 0, -1);
            tell.accept(batch.syncAndReturnAll());
        }
    }

    private static void transaction(RedisClient client, String key, Consumer<Object> tell) {
        try (AbstractTransaction batch = client.multi()) {
            batch.set(key, "1");
            batch.incr(key);
            batch.get(key);
            tell.accept(batch.exec());
        }
    }

    private static void watch(RedisClient client, String key, Consumer<Object> tell) {
        client.set(key, "5");
        try (AbstractTransaction batch = client.transaction(false)) {
            tell.accept(batch.watch(key));
            int value = Integer.parseInt(client.get(key));
            batch.multi();
            batch.set(key, String.valueOf(value * 2));
            batch.get(key);
            tell.accept(batch.exec());
        }
    }

    private static void script(RedisClient client, String key, Consumer<Object> tell) {
        String digest = client.scriptLoad(ADD, key);
        for (String number : List.of("7", "8")) {
            try {
                tell.accept(client.evalsha(digest, 1, key, number));
            } catch (JedisNoScriptException unknown) {
                tell.accept(client.eval(ADD, 1, key, number));
            }
        }
    }

    /** Every way to begin a connection: RESP, names, users, databases, wrong passwords. */
    private static void greeting(RedisClient client, String key, Consumer<Object> tell) {
        List<DefaultJedisClientConfig.Builder> ways = List.of(
            settings().protocol(RedisProtocol.RESP2),
            settings().protocol(RedisProtocol.RESP3),
            settings().clientName("tested"),
            settings().database(3),
            settings().user("tested").password("secret"),
            settings().user("tested").password("wrong"));
        for (DefaultJedisClientConfig.Builder way : ways) {
            try (RedisClient own = with(way)) {
                tell.accept(own.set(key, "mine"));
                tell.accept(own.get(key) + " " + client.get(key));
                tell.accept(new String((byte[]) own.sendCommand(redis.clients.jedis.Protocol.Command.ACL, "WHOAMI")));
            } catch (JedisException error) {
                tell.accept(error.getMessage());
            }
        }
    }

    /** One client in many threads: a pool of connections. */
    private static void concurrent(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        try (RedisClient own = connect()) {
            ExecutorService threads = Executors.newFixedThreadPool(8);
            List<Future<String>> replies = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                String name = key + ":" + number;
                replies.add(threads.submit(() -> own.set(name, name) + own.get(name)));
            }
            for (Future<String> reply : replies) {
                tell.accept(reply.get());
            }
            threads.shutdown();
        }
    }

    /** A client that goes away while it blocks takes nothing with it. */
    private static void abandoned(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        Waiting own = new Waiting();
        own.pop(key);
        tell.accept(Protocol.until(() -> Protocol.blockedIn(client.info("clients")), "1"));
        own.close();
        tell.accept(Protocol.until(() -> Protocol.blockedIn(client.info("clients")), "0"));
        tell.accept(client.rpush(key, "kept") + " " + client.lrange(key, 0, -1));
    }

    /** What comes after a reply that nobody waits for any more is the right one. */
    private static void timeouts(RedisClient client, String key, Consumer<Object> tell) {
        try (RedisClient own = with(settings().blockingSocketTimeoutMillis(300))) {
            try {
                tell.accept(own.blpop(2.0, key));
            } catch (JedisException late) {
                tell.accept("timed out");
            }
            tell.accept(own.set(key + ":after", "mine") + own.get(key + ":after"));
        }
    }

    private static void patterns(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        Subscription subscription = new Subscription();
        Thread listener = new Thread(() -> client.psubscribe(subscription, key + ":*"));
        listener.start();
        tell.accept(subscription.next());
        tell.accept(client.publish(key + ":one", "hello"));
        tell.accept(subscription.next());
        subscription.punsubscribe();
        listener.join();
    }

    /** Until the server has been killed and is there again, without its data. */
    private static void killed(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        client.set(key, "before");
        tell.accept(Protocol.untilLost(() -> client.get(key) == null));
        tell.accept(client.set(key + ":after", "there") + client.get(key + ":after") + client.get(key));
    }

    private static void scan(RedisClient client, String key, Consumer<Object> tell) {
        for (int number = 0; number < 30; number++) {
            client.set(key + ":" + number, String.valueOf(number));
        }
        TreeSet<String> found = new TreeSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> part = client.scan(cursor, new ScanParams().match(key + ":*"));
            found.addAll(part.getResult());
            cursor = part.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        tell.accept(found);
    }

    private static void blocking(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        tell.accept(client.blpop(1.0, key));
        client.rpush(key, "there");
        tell.accept(client.blpop(1.0, key));
        try (RedisClient other = connect()) {
            Thread push = new Thread(() -> {
                try {
                    Thread.sleep(100);
                } catch (InterruptedException early) {
                    Thread.currentThread().interrupt();
                }
                other.rpush(key, "pushed");
            });
            push.start();
            tell.accept(client.blpop((double) Protocol.PATIENCE_SECONDS, key));
            push.join();
        }
    }

    private static void subscribe(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        Subscription subscription = new Subscription();
        SUBSCRIPTIONS.put(key, subscription);
        Thread listener = new Thread(() -> client.subscribe(subscription, key));
        listener.setDaemon(true);
        listener.start();
        tell.accept(subscription.next());
        tell.accept(client.publish(key, "hello"));
        tell.accept(subscription.next());
    }

    private static void unsubscribe(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        Subscription subscription = SUBSCRIPTIONS.remove(key.replace("unsubscribe", "subscribe"));
        subscription.unsubscribe();
        tell.accept(subscription.next());
    }

    private static void caching(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        DefaultJedisClientConfig resp3 = settings().protocol(RedisProtocol.RESP3).build();
        client.set(key, "old");
        try (RedisClient cached = RedisClient.builder().hostAndPort(host, port).clientConfig(resp3)
                .cacheConfig(CacheConfig.builder().build()).build()) {
            for (int number = 0; number < 3; number++) {
                tell.accept(cached.get(key));
            }
            client.set(key, "new");
            tell.accept(Protocol.until(() -> cached.get(key), "new"));
            tell.accept(cached.getCache().getSize());
        } catch (JedisException refusal) {
            if (refusal.getMessage().startsWith("Client side caching is only supported")) {
                throw new Protocol.Unsupported(refusal);
            }
            throw refusal;
        }
    }

    /** It learns where the slots are, and goes to the node of each key. */
    private static void clusterMode(RedisClient client, String key, Consumer<Object> tell) throws Exception {
        String tag = "{" + key + "}";
        try (RedisClusterClient cluster = RedisClusterClient.builder().nodes(Set.of(new HostAndPort(host, port))).build()) {
            for (int number = 0; number < 20; number++) {
                tell.accept(cluster.set(key + ":" + number, "there") + cluster.get(key + ":" + number));
            }
            try (AbstractPipeline batch = cluster.pipelined()) {
                List<Response<Long>> lengths = new ArrayList<>();
                for (int number = 0; number < 20; number++) {
                    lengths.add(batch.append(key + ":" + number, "!"));
                }
                batch.sync();
                lengths.forEach(length -> tell.accept(length.get()));
            }
            tell.accept(cluster.mget(tag + "a", tag + "none"));
            tell.accept(cluster.eval(ADD, List.of(tag + "b"), List.of("7")));
            tell.accept(cluster.blpop(1, tag + "c"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        host = arguments[0];
        port = Integer.parseInt(arguments[1]);
        Map<String, Protocol.Feature<RedisClient>> features = new HashMap<>();
        features.put("strings", Jedis::strings);
        features.put("pipeline", Jedis::pipeline);
        features.put("transaction", Jedis::transaction);
        features.put("watch", Jedis::watch);
        features.put("script", Jedis::script);
        features.put("scan", Jedis::scan);
        features.put("blocking", Jedis::blocking);
        features.put("subscribe", Jedis::subscribe);
        features.put("unsubscribe", Jedis::unsubscribe);
        features.put("caching", Jedis::caching);
        features.put("greeting", Jedis::greeting);
        features.put("concurrent", Jedis::concurrent);
        features.put("abandoned", Jedis::abandoned);
        features.put("timeouts", Jedis::timeouts);
        features.put("patterns", Jedis::patterns);
        features.put("killed", Jedis::killed);
        features.put("cluster_mode", Jedis::clusterMode);
        Protocol.serve(Protocol.versionOf(RedisClient.class), Integer.parseInt(arguments[2]), Jedis::connect, features,
                RedisClient::close);
    }
}
