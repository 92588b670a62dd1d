// redis-plus-plus with its default settings. scripts/clients_program.py tells what a program is asked and answers.
#include <chrono>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <sw/redis++/redis++.h>
#include <sw/redis++/version.h>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
namespace redis = sw::redis;

static const char *const ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
static const auto PATIENCE = 20s;

static redis::ConnectionOptions address;

// ---- replies as text ----

static std::string text(const std::string &value)
{
    return '"' + value + '"';
}

template <typename T> static std::enable_if_t<std::is_arithmetic<T>::value, std::string> text(T value)
{
    std::ostringstream out;
    out << std::boolalpha << value;
    return out.str();
}

template <typename A, typename B> static std::string text(const std::pair<A, B> &value)
{
    return text(value.first) + "=" + text(value.second);
}

template <typename T> static std::string text(const redis::Optional<T> &value)
{
    return value ? text(*value) : "none";
}

template <typename T> static std::string text_of_all(const T &values)
{
    std::string all;
    for (const auto &value : values)
        all += (all.empty() ? "" : ", ") + text(value);
    return "[" + all + "]";
}

using Lines = std::vector<std::string>;

template <typename T> static void tell(Lines &lines, const T &reply)
{
    lines.push_back("reply " + text(reply));
}

static void tell_error(Lines &lines, const char *kind, const std::exception &error)
{
    std::string line = std::string(kind) + " " + error.what();
    for (char &each : line) {
        if (each == '\n' || each == '\r')
            each = ' ';
    }
    lines.push_back(line);
}

// ---- features ----

using Client = std::shared_ptr<redis::Redis>;

static Client connect(const redis::ConnectionOptions &options = address)
{
    return std::make_shared<redis::Redis>(options);
}

static void strings(Client client, const std::string &key, Lines &lines)
{
    std::vector<redis::OptionalString> values;

    tell(lines, client->set(key, "first"));
    tell(lines, client->get(key));
    tell(lines, client->get(key + ":none"));
    for (int number = 0; number < 3; number++)
        tell(lines, client->incr(key + ":count"));
    tell(lines, client->set(key + ":timed", "second", 1000s));
    client->mget({key, key + ":timed", key + ":none"}, std::back_inserter(values));
    lines.push_back("reply " + text_of_all(values));
}

static void pipeline(Client client, const std::string &key, Lines &lines)
{
    auto batch = client->pipeline();
    std::vector<std::string> all;

    for (int number = 0; number < 50; number++)
        batch.rpush(key, std::to_string(number));
    batch.lrange(key, 0, -1);
    auto replies = batch.exec();
    tell(lines, replies.get<long long>(49));
    replies.get(50, std::back_inserter(all));
    lines.push_back("reply " + text_of_all(all));
}

static void transaction(Client client, const std::string &key, Lines &lines)
{
    auto replies = client->transaction().set(key, "1").incr(key).get(key).exec();

    tell(lines, replies.get<long long>(1));
    tell(lines, replies.get<redis::OptionalString>(2));
}

static void watch(Client client, const std::string &key, Lines &lines)
{
    for (bool loses : {false, true}) {
        auto batch = client->transaction();
        auto watched = batch.redis();

        client->set(key, "5");
        watched.watch(key);
        auto value = watched.get(key);
        if (loses)
            client->set(key, "7");
        try {
            batch.set(key, std::to_string(2 * std::stoi(*value))).exec();
        } catch (const redis::WatchError &error) {
            tell_error(lines, "reply", error);
        }
        tell(lines, client->get(key));
    }
}

static void script(Client client, const std::string &key, Lines &lines)
{
    auto digest = client->script_load(ADD);

    for (const char *number : {"7", "8"}) {
        auto sum = client->evalsha<std::tuple<long long, std::string>>(digest, {key}, {number});
        tell(lines, std::make_pair(std::get<0>(sum), std::get<1>(sum)));
    }
}

static void scan(Client client, const std::string &key, Lines &lines)
{
    std::set<std::string> found;
    auto cursor = 0LL;

    for (int number = 0; number < 30; number++)
        client->set(key + ":" + std::to_string(number), "there");
    do {
        cursor = client->scan(cursor, key + ":*", 100, std::inserter(found, found.begin()));
    } while (cursor != 0);
    lines.push_back("reply " + text_of_all(found));
}

static void greeting(Client client, const std::string &key, Lines &lines)
{
    for (int way = 0; way < 4; way++) {
        auto options = address;
        options.db = way == 1 ? 3 : 0;
        options.resp = way == 1 ? 3 : 2;
        options.user = way > 1 ? "tested" : "default";
        options.password = way == 2 ? "secret" : way == 3 ? "wrong" : "";
        try {
            auto own = connect(options);
            tell(lines, own->set(key, std::to_string(way)));
            tell(lines, own->get(key));
            tell(lines, own->command<std::string>("ACL", "WHOAMI"));
            tell(lines, client->get(key));
        } catch (const redis::Error &error) {
            tell_error(lines, "reply", error);
        }
    }
}

// A pool of connections, in many threads.
static void concurrent(Client, const std::string &key, Lines &lines)
{
    redis::ConnectionPoolOptions pool;
    std::vector<std::string> values(100);
    std::vector<std::thread> threads;

    pool.size = 5;
    redis::Redis client(address, pool);
    for (int number = 0; number < 10; number++) {
        threads.emplace_back([&, number] {
            for (int each = number; each < 100; each += 10) {
                client.set(key + ":" + std::to_string(each), std::to_string(each));
                values[each] = client.get(key + ":" + std::to_string(each)).value_or("none");
            }
        });
    }
    for (auto &thread : threads)
        thread.join();
    lines.push_back("reply " + text_of_all(values));
}

static void timeouts(Client, const std::string &key, Lines &lines)
{
    auto options = address;

    options.socket_timeout = 1s;
    auto client = connect(options);
    try {
        tell(lines, client->blpop(key, 4s));
    } catch (const redis::TimeoutError &) {
        lines.push_back("reply timed out");
    }
    tell(lines, client->set(key + ":after", "mine"));
    tell(lines, client->get(key + ":after"));
}

static void blocking(Client client, const std::string &key, Lines &lines)
{
    tell(lines, client->blpop(key, 1s));
    client->rpush(key, "there");
    tell(lines, client->blpop(key, PATIENCE));
    std::thread pusher([&] {
        std::this_thread::sleep_for(100ms);
        connect()->rpush(key, "pushed");
    });
    tell(lines, client->blpop(key, PATIENCE));
    pusher.join();
}

// A subscriber that tells all that comes to it.
static redis::Subscriber ears(Client client, Lines &lines)
{
    auto subscriber = client->subscriber();

    subscriber.on_meta([&](redis::Subscriber::MsgType, redis::OptionalString to, long long count) {
        lines.push_back("reply " + text(to) + " " + text(count));
    });
    subscriber.on_message([&](std::string from, std::string message) { tell(lines, from + " " + message); });
    subscriber.on_smessage(
        [&](std::string from, std::string message) { tell(lines, "shard " + from + " " + message); });
    subscriber.on_pmessage(
        [&](std::string by, std::string from, std::string message) { tell(lines, by + " " + from + " " + message); });
    return subscriber;
}

static Client patient()
{
    auto options = address;

    options.socket_timeout = PATIENCE;
    return connect(options);
}

static void subscribe(Client client, const std::string &key, Lines &lines)
{
    auto subscriber = ears(patient(), lines);

    subscriber.subscribe(key);
    subscriber.consume();
    tell(lines, client->publish(key, "hello"));
    subscriber.consume();
}

static void unsubscribe(Client client, const std::string &key, Lines &lines)
{
    auto subscriber = ears(patient(), lines);

    subscriber.subscribe({key, key + ":other"});
    subscriber.consume();
    subscriber.consume();
    subscriber.unsubscribe(key);
    subscriber.consume();
    tell(lines, client->publish(key, "nobody"));
    tell(lines, client->publish(key + ":other", "hello"));
    subscriber.consume();
}

static void patterns(Client client, const std::string &key, Lines &lines)
{
    auto subscriber = ears(patient(), lines);

    subscriber.psubscribe(key + ":*");
    subscriber.consume();
    tell(lines, client->publish(key + ":one", "hello"));
    subscriber.consume();
    subscriber.punsubscribe(key + ":*");
    subscriber.consume();
}

static void shards(Client client, const std::string &key, Lines &lines)
{
    auto subscriber = ears(patient(), lines);

    subscriber.ssubscribe(key);
    subscriber.consume();
    tell(lines, client->spublish(key, "hello"));
    subscriber.consume();
}

// It learns where the slots are, and goes to the node of each key.
static void cluster_mode(Client, const std::string &key, Lines &lines)
{
    redis::RedisCluster cluster(address);
    std::string name = "{" + key + "}";

    for (int number = 0; number < 20; number++) {
        auto each = key + ":" + std::to_string(number);
        tell(lines, cluster.set(each, each));
        tell(lines, cluster.get(each));
    }
    auto replies = cluster.transaction(key, false).set(name, "1").incr(name).get(name).exec();
    tell(lines, replies.get<long long>(1));
    auto batch = cluster.pipeline(key, false).rpush(name + "a", {"1", "2"}).llen(name + "a").exec();
    tell(lines, batch.get<long long>(1));
    tell(lines, cluster.eval<long long>("return redis.call('INCRBY', KEYS[1], ARGV[1])", {name + "b"}, {"7"}));
    tell(lines, cluster.blpop(name + "c", 1s));
    for (int number = 0; number < 20; number++)
        tell(lines, cluster.del(key + ":" + std::to_string(number)));
}

// Until the server has been killed and is there again, without its data.
static void killed(Client client, const std::string &key, Lines &lines)
{
    auto end = std::chrono::steady_clock::now() + PATIENCE;
    int lost = 0;

    client->set(key, "before");
    for (bool gone = false; !gone && std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(10ms)) {
        try {
            gone = !client->get(key);
        } catch (const redis::Error &) {
            lost++;
        }
    }
    lines.push_back("reply lost=" + std::to_string(lost));
    tell(lines, client->set(key + ":after", "there"));
    tell(lines, client->get(key + ":after"));
}

// ---- what is asked ----

using Feature = void (*)(Client, const std::string &, Lines &);

static const std::map<std::string, Feature> FEATURES = {
    {"strings", strings},
    {"pipeline", pipeline},
    {"transaction", transaction},
    {"watch", watch},
    {"script", script},
    {"scan", scan},
    {"greeting", greeting},
    {"concurrent", concurrent},
    {"timeouts", timeouts},
    {"blocking", blocking},
    {"subscribe", subscribe},
    {"unsubscribe", unsubscribe},
    {"patterns", patterns},
    {"shards", shards},
    {"killed", killed},
    {"cluster_mode", cluster_mode},
};

static void run(Feature feature, Client client, const std::string &key, Lines &lines)
{
    try {
        feature(client, key, lines);
    } catch (const std::exception &error) {
        tell_error(lines, "error", error);
    }
}

static void answer(const std::string &name, bool together, const std::vector<Client> &clients)
{
    auto feature = FEATURES.find(name);
    std::vector<Lines> outcomes(clients.size());
    std::vector<std::thread> threads;

    if (feature == FEATURES.end()) {
        std::cout << "unsupported\n";
        return;
    }
    for (size_t number = 0; number < clients.size(); number++) {
        auto work = [&, number] {
            run(feature->second, clients[number], "newest:" + name + ":" + std::to_string(number), outcomes[number]);
        };
        if (together)
            threads.emplace_back(work);
        else
            work();
    }
    for (auto &thread : threads)
        thread.join();
    for (const auto &lines : outcomes) {
        for (const auto &line : lines)
            std::cout << line << "\n";
    }
}

int main(int, char **arguments)
{
    std::vector<Client> clients;
    std::string line;

    address.host = arguments[1];
    address.port = std::stoi(arguments[2]);
    for (int number = 0; number < std::stoi(arguments[3]); number++) {
        clients.push_back(connect());
        clients.back()->ping();
    }
    std::cout << "version " << redis::VERSION_MAJOR << "." << redis::VERSION_MINOR << "." << redis::VERSION_PATCH
              << "\nready" << std::endl;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string verb, name, how;
        words >> verb >> name >> how;
        answer(name, how == "together", clients);
        std::cout << "done" << std::endl;
    }
}
