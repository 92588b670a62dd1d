// What a program of tests/newest is asked, and how it answers: scripts/clients_program.py.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

final class Protocol {
    /** Tells its replies, one after the other, by tell. */
    interface Feature<C> {
        void run(C client, String key, Consumer<Object> tell) throws Exception;
    }

    /** How long something is waited for that should happen at once. */
    static final int PATIENCE_SECONDS = 20;

    /** Of the library that a class belongs to, by the name of its jar. */
    static String versionOf(Class<?> type) {
        String jar = type.getProtectionDomain().getCodeSource().getLocation().getPath();
        Matcher version = Pattern.compile("-(\\d[^/]*?)(\\.RELEASE)?\\.jar$").matcher(jar);
        return version.find() ? version.group(1) : "unknown";
    }

    static <C> List<String> outcome(Feature<C> feature, C client, String key) {
        List<String> lines = new ArrayList<>();
        if (feature == null) {
            return List.of("unsupported");
        }
        try {
            feature.run(client, key, reply -> lines.add("reply " + String.valueOf(reply).replace("\n", " ")));
        } catch (Exception | LinkageError error) {
            lines.add("error " + error.toString().replace("\n", " "));
        }
        return lines;
    }

    static <C> void serve(String version, int count, Supplier<C> connect, Map<String, Feature<C>> features,
            Consumer<C> close) throws Exception {
        List<C> clients = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            clients.add(connect.get());
        }
        System.out.println("version " + version);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            answer(words[1], features.get(words[1]), clients, words[2].equals("together") ? count : 1);
            System.out.println("done");
        }
        clients.forEach(close);
        System.exit(0);
    }

    private static <C> void answer(String name, Feature<C> feature, List<C> clients, int atOnce) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(atOnce);
        List<Future<List<String>>> outcomes = new ArrayList<>();
        for (C client : clients) {
            String key = "newest:" + name + ":" + outcomes.size();
            outcomes.add(threads.submit(() -> outcome(feature, client, key)));
        }
        for (Future<List<String>> outcome : outcomes) {
            outcome.get().forEach(System.out::println);
        }
        threads.shutdown();
    }

    /** Asks again until the answer is the one that is wanted, within reason. */
    static String until(Supplier<String> ask, String wanted) throws InterruptedException {
        long end = System.nanoTime() + PATIENCE_SECONDS * 1_000_000_000L;
        String got = ask.get();
        while (!wanted.equals(got) && System.nanoTime() < end) {
            Thread.sleep(10);
            got = ask.get();
        }
        return got;
    }

    /** Asks until the answer is yes, and says how often it has failed meanwhile. */
    static String untilLost(Supplier<Boolean> ask) throws InterruptedException {
        long end = System.nanoTime() + PATIENCE_SECONDS * 1_000_000_000L;
        int lost = 0;
        for (boolean done = false; !done && System.nanoTime() < end; Thread.sleep(10)) {
            try {
                done = ask.get();
            } catch (RuntimeException error) {
                lost++;
            }
        }
        return "lost=" + lost;
    }
}
