// Spring Data Redis over Lettuce, with its default settings.
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.springframework.dao.DataAccessException;
import org.springframework.dao.QueryTimeoutException;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.Cursor;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.ScanOptions;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.listener.ChannelTopic;
import org.springframework.data.redis.listener.PatternTopic;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;
import org.springframework.data.redis.listener.Topic;

public final class SpringData {
    private static final String ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
    private static String host;
    private static int port;

    private static StringRedisTemplate connect() {
        StringRedisTemplate client = connectWith(new RedisStandaloneConfiguration(host, port), null);
        client.execute((RedisCallback<String>) connection -> connection.ping());
        return client;
    }

    private static StringRedisTemplate connectWith(RedisStandaloneConfiguration server, Duration timeout) {
        LettuceClientConfiguration.LettuceClientConfigurationBuilder settings = LettuceClientConfiguration.builder();
        if (timeout != null) {
            settings.commandTimeout(timeout);
        }
        if (System.getenv("TESTED_BY_TLS") != null) {
            settings.useSsl();
        }
        LettuceConnectionFactory factory = new LettuceConnectionFactory(server, settings.build());
        factory.afterPropertiesSet();
        factory.start();
        return new StringRedisTemplate(factory);
    }

    private static void close(StringRedisTemplate client) {
        ((LettuceConnectionFactory) client.getConnectionFactory()).destroy();
    }

    private static void strings(StringRedisTemplate client, String key, Consumer<Object> tell) {
        client.opsForValue().set(key, "first");
        tell.accept(client.opsForValue().get(key));
        tell.accept(client.opsForValue().get(key + ":none"));
        for (int number = 0; number < 3; number++) {
            tell.accept(client.opsForValue().increment(key + ":count"));
        }
        client.opsForValue().set(key + ":timed", "second", Duration.ofSeconds(1000));
        tell.accept(client.getExpire(key + ":timed") > 900);
        tell.accept(client.opsForValue().multiGet(List.of(key, key + ":timed", key + ":none")));
        tell.accept(client.opsForValue().setIfAbsent(key, "other", Duration.ofSeconds(10)));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void pipeline(StringRedisTemplate client, String key, Consumer<Object> tell) {
        tell.accept(client.executePipelined((RedisCallback<Object>) connection -> {
            for (int number = 0; number < 50; number++) {
                connection.listCommands().rPush(bytes(key), bytes("" + number));
            }
            connection.listCommands().lRange(bytes(key), 0, -1);
            return null;
        }));
    }

    /** What a session does has one connection. */
    private interface Session {
        List<Object> run(RedisOperations<String, String> session);
    }

    private static List<Object> inSession(StringRedisTemplate client, Session body) {
        return client.execute(new SessionCallback<List<Object>>() {
            @Override
            @SuppressWarnings("unchecked")
            public <K, V> List<Object> execute(RedisOperations<K, V> session) {
                return body.run((RedisOperations<String, String>) session);
            }
        });
    }

    private static void transaction(StringRedisTemplate client, String key, Consumer<Object> tell) {
        tell.accept(inSession(client, session -> {
            session.multi();
            session.opsForValue().set(key, "1");
            session.opsForValue().increment(key);
            session.opsForValue().get(key);
            return session.exec();
        }));
    }

    private static void watch(StringRedisTemplate client, String key, Consumer<Object> tell) {
        for (boolean loses : List.of(false, true)) {
            client.opsForValue().set(key, "5");
            tell.accept(inSession(client, session -> {
                session.watch(key);
                int value = Integer.parseInt(session.opsForValue().get(key));
                if (loses) {
                    client.opsForValue().set(key, "7");
                }
                session.multi();
                session.opsForValue().set(key, String.valueOf(value * 2));
                return session.exec();
            }));
            tell.accept(client.opsForValue().get(key));
        }
    }

    private static void script(StringRedisTemplate client, String key, Consumer<Object> tell) {
        for (String number : List.of("7", "8")) {
            tell.accept(client.execute(new DefaultRedisScript<>(ADD, List.class), List.of(key), number));
        }
    }

    private static void scan(StringRedisTemplate client, String key, Consumer<Object> tell) {
        for (int number = 0; number < 30; number++) {
            client.opsForValue().set(key + ":" + number, "" + number);
        }
        TreeSet<String> found = new TreeSet<>();
        try (Cursor<String> keys = client.scan(ScanOptions.scanOptions().match(key + ":*").count(10).build())) {
            keys.forEachRemaining(found::add);
        }
        tell.accept(found);
    }

    private static void greeting(StringRedisTemplate client, String key, Consumer<Object> tell) {
        RedisStandaloneConfiguration database = new RedisStandaloneConfiguration(host, port);
        database.setDatabase(3);
        List<RedisStandaloneConfiguration> ways = new ArrayList<>(List.of(database));
        for (String password : List.of("secret", "wrong")) {
            RedisStandaloneConfiguration user = new RedisStandaloneConfiguration(host, port);
            user.setUsername("tested");
            user.setPassword(password);
            ways.add(user);
        }
        for (RedisStandaloneConfiguration way : ways) {
            StringRedisTemplate own = connectWith(way, null);
            try {
                own.opsForValue().set(key, "mine");
                tell.accept(own.opsForValue().get(key) + client.opsForValue().get(key));
            } catch (DataAccessException error) {
                // Its cause is sometimes what Redis has said, and sometimes that the connection is closed then.
                tell.accept(error.getClass().getSimpleName());
            }
            close(own);
        }
    }

    /** One shared connection in many threads. */
    private static void concurrent(StringRedisTemplate client, String key, Consumer<Object> tell) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(10);
        List<Future<String>> replies = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            String name = key + ":" + number;
            replies.add(threads.submit(() -> {
                client.opsForValue().set(name, name);
                return client.opsForValue().get(name);
            }));
        }
        for (Future<String> reply : replies) {
            tell.accept(reply.get(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        }
        threads.shutdown();
    }

    private static void timeouts(StringRedisTemplate client, String key, Consumer<Object> tell) {
        StringRedisTemplate own = connectWith(new RedisStandaloneConfiguration(host, port), Duration.ofSeconds(3));
        try {
            tell.accept(own.opsForList().leftPop(key, Duration.ofSeconds(6)));
        } catch (QueryTimeoutException late) {
            tell.accept("timed out");
        }
        own.opsForValue().set(key + ":after", "mine");
        tell.accept(own.opsForValue().get(key + ":after"));
        close(own);
    }

    private static void blocking(StringRedisTemplate client, String key, Consumer<Object> tell) throws Exception {
        tell.accept(client.opsForList().leftPop(key, Duration.ofSeconds(1)));
        client.opsForList().rightPush(key, "there");
        tell.accept(client.opsForList().leftPop(key, Duration.ofSeconds(Protocol.PATIENCE_SECONDS)));
        Thread pusher = new Thread(() -> {
            try {
                Thread.sleep(100);
            } catch (InterruptedException interrupted) {
                return;
            }
            client.opsForList().rightPush(key, "pushed");
        });
        pusher.start();
        tell.accept(client.opsForList().leftPop(key, Duration.ofSeconds(Protocol.PATIENCE_SECONDS)));
        pusher.join();
    }

    private static void hear(StringRedisTemplate client, Topic topic, String channel, Consumer<Object> tell) throws Exception {
        BlockingQueue<String> came = new ArrayBlockingQueue<>(100);
        RedisMessageListenerContainer container = new RedisMessageListenerContainer();
        container.setConnectionFactory(client.getConnectionFactory());
        container.addMessageListener((message, pattern) -> came.add(message + " " + new String(message.getChannel())), topic);
        container.afterPropertiesSet();
        container.start();
        tell.accept(Protocol.until(() -> String.valueOf(client.convertAndSend(channel, "hello")), "1"));
        tell.accept(came.poll(Protocol.PATIENCE_SECONDS, TimeUnit.SECONDS));
        container.stop();
        container.destroy();
    }

    private static void subscribe(StringRedisTemplate client, String key, Consumer<Object> tell) throws Exception {
        hear(client, new ChannelTopic(key), key, tell);
    }

    private static void patterns(StringRedisTemplate client, String key, Consumer<Object> tell) throws Exception {
        hear(client, new PatternTopic(key + ":*"), key + ":one", tell);
    }

    private static void killed(StringRedisTemplate client, String key, Consumer<Object> tell) throws Exception {
        client.opsForValue().set(key, "before");
        tell.accept(Protocol.untilLost(() -> client.opsForValue().get(key) == null));
        client.opsForValue().set(key + ":after", "there");
        tell.accept(client.opsForValue().get(key + ":after"));
    }

    /** It learns where the slots are, and goes to the node of each key. */
    private static void clusterMode(StringRedisTemplate client, String key, Consumer<Object> tell) {
        String tag = "{" + key + "}";
        RedisClusterConfiguration nodes = new RedisClusterConfiguration(List.of(host + ":" + port));
        LettuceConnectionFactory factory = new LettuceConnectionFactory(nodes, LettuceClientConfiguration.builder().build());
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate own = new StringRedisTemplate(factory);
        Map<String, String> all = new TreeMap<>();
        for (int number = 0; number < 20; number++) {
            all.put(key + ":" + number, "there " + number);
        }
        own.opsForValue().multiSet(all);
        tell.accept(own.opsForValue().multiGet(all.keySet()));
        tell.accept(own.execute(new DefaultRedisScript<>(ADD, List.class), List.of(tag + "b"), "7"));
        tell.accept(own.opsForList().leftPop(tag + "c", Duration.ofSeconds(1)));
        tell.accept(own.delete(all.keySet()));
        factory.destroy();
    }

    public static void main(String[] arguments) throws Exception {
        host = arguments[0];
        port = Integer.parseInt(arguments[1]);
        Map<String, Protocol.Feature<StringRedisTemplate>> features = new HashMap<>();
        features.put("strings", SpringData::strings);
        features.put("pipeline", SpringData::pipeline);
        features.put("transaction", SpringData::transaction);
        features.put("watch", SpringData::watch);
        features.put("script", SpringData::script);
        features.put("scan", SpringData::scan);
        features.put("greeting", SpringData::greeting);
        features.put("concurrent", SpringData::concurrent);
        features.put("timeouts", SpringData::timeouts);
        features.put("blocking", SpringData::blocking);
        features.put("subscribe", SpringData::subscribe);
        features.put("patterns", SpringData::patterns);
        features.put("killed", SpringData::killed);
        features.put("cluster_mode", SpringData::clusterMode);
        Protocol.serve(Protocol.versionOf(StringRedisTemplate.class), Integer.parseInt(arguments[2]), SpringData::connect,
            features, SpringData::close);
    }
}
