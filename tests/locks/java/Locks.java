import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Locks of Redisson: HOST PORT[,PORT...] LIBRARY WATCHDOG_MS. Several ports are those of the masters of a RedLock. The
 * protocol is told in tests/locks/laboratory.py; here there is
 * "again", too, by which the owner takes its lock once more. Each "acquire" comes from a thread of its own, since
 * threads are Redisson's owners.
 */
public final class Locks {
    private interface Held {
        void release() throws Exception;
    }

    private static final class Owner {
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        final Deque<Held> holds = new ArrayDeque<>();

        <T> T run(Callable<T> work) throws Exception {
            try {
                return thread.submit(work).get();
            } catch (ExecutionException failure) {
                throw failure.getCause() instanceof Exception cause ? cause : failure;
            }
        }
    }

    private final RedissonClient client;
    private final RedissonClient[] masters;
    private final String library;
    private final Map<String, Owner> owners = new HashMap<>();

    private Locks(RedissonClient[] masters, String library) {
        this.client = masters[0];
        this.masters = masters;
        this.library = library;
    }

    private RLock lockOf(String name) {
        switch (library) {
        case "lock":
        case "watchdog":
            return client.getLock(name);
        case "fair":
        case "fair-watchdog":
            return client.getFairLock(name);
        case "read":
        case "read-watchdog":
            return client.getReadWriteLock(name).readLock();
        case "write":
            return client.getReadWriteLock(name).writeLock();
        case "spin":
            return client.getSpinLock(name);
        case "fenced":
            return (RLock) fencedLockOf(name);
        case "redlock":
            return new RedissonRedLock(Arrays.stream(masters).map(master -> master.getLock(name)).toArray(RLock[]::new));
        case "multi":
            return client.getMultiLock(client.getLock(name), client.getLock(name + ":second"));
        default:
            throw new IllegalArgumentException("no library " + library);
        }
    }

    /** The older version, for which this is compiled as well, has none. */
    private Object fencedLockOf(String name) {
        try {
            return RedissonClient.class.getMethod("getFencedLock", String.class).invoke(client, name);
        } catch (ReflectiveOperationException missing) {
            throw new IllegalArgumentException(missing);
        }
    }

    /** Null if it is taken. */
    private Held acquire(String name, long lease) throws Exception {
        if (library.equals("permit")) {
            RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
            semaphore.trySetPermits(1);
            String permit = semaphore.tryAcquire(0, lease, TimeUnit.MILLISECONDS);
            return permit == null ? null : () -> semaphore.release(permit);
        }
        RLock lock = lockOf(name);
        boolean acquired = library.endsWith("watchdog") ? lock.tryLock() : lock.tryLock(0, lease, TimeUnit.MILLISECONDS);
        return !acquired ? null : library.equals("redlock") ? () -> unlockAll(lock) : lock::unlock;
    }

    /** A master that has died, or has come back without the lock, is told of after all were unlocked. */
    private static void unlockAll(RLock lock) {
        try {
            lock.unlock();
        } catch (RuntimeException ofOne) {
            System.err.println(ofOne);
        }
    }

    private boolean answer(String command, String name, String lease) throws Exception {
        if (command.equals("acquire")) {
            Owner owner = new Owner();
            Held held = owner.run(() -> acquire(name, Long.parseLong(lease)));
            if (held == null) {
                owner.thread.shutdown();
                return false;
            }
            owner.holds.push(held);
            owners.put(name, owner);
            return true;
        }
        Owner owner = owners.get(name);
        if (command.equals("again")) {
            Held held = owner.run(() -> acquire(name, Long.parseLong(lease)));
            if (held != null) {
                owner.holds.push(held);
            }
            return held != null;
        }
        Held held = owner.holds.pop();
        owner.run(() -> {
            held.release();
            return null;
        });
        return true;
    }

    private static RedissonClient connect(String host, String port, String watchdog) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(Long.parseLong(watchdog));
        config.useSingleServer()
            .setAddress("redis://" + host + ":" + port)
            // The library's own 3 s are not enough on a machine with much else to do.
            .setTimeout(60_000)
            .setConnectTimeout(60_000)
            .setConnectionMinimumIdleSize(2)
            .setConnectionPoolSize(4);
        return Redisson.create(config);
    }

    public static void main(String[] arguments) throws Exception {
        RedissonClient[] masters = Arrays.stream(arguments[1].split(","))
            .map(port -> connect(arguments[0], port, arguments[3]))
            .toArray(RedissonClient[]::new);
        Locks locks = new Locks(masters, arguments[2]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                System.out.println(locks.answer(words[0], words[1], words.length > 2 ? words[2] : "") ? "yes" : "no");
            } catch (Exception failure) {
                System.out.println("error " + failure);
            }
        }
        System.exit(0);
    }
}
