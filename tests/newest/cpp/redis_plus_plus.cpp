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
static const char *const FUNCTIONS =
    "#!lua name=tested\nredis.register_function('tested_add', function(keys, arguments) "
    "return redis.call('INCRBY', keys[1], arguments[1]) end)";
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

static void refused(Client client, const std::string &key, Lines &lines)
{
    client->set(key, "no number");
    try {
        tell(lines, client->incr(key));
    } catch (const redis::ReplyError &error) {
        tell_error(lines, "reply", error);
    }
}

static void hashes(Client client, const std::string &key, Lines &lines)
{
    std::map<std::string, std::string> all;

    client->hmset(key, {std::make_pair("one", "1"), std::make_pair("two", "2")});
    client->hgetall(key, std::inserter(all, all.begin()));
    lines.push_back("reply " + text_of_all(all));
    tell(lines, client->hincrby(key, "two", 40));
}

static void lists(Client client, const std::string &key, Lines &lines)
{
    std::vector<std::string> all;

    tell(lines, client->rpush(key, {"a", "b", "c"}));
    client->lrange(key, 0, -1, std::back_inserter(all));
    lines.push_back("reply " + text_of_all(all));
    tell(lines, client->lpop(key));
}

static void sorted_sets(Client client, const std::string &key, Lines &lines)
{
    std::vector<std::pair<std::string, double>> all;

    tell(lines, client->zadd(key, {std::make_pair("a", 1.5), std::make_pair("b", 2.0)}));
    client->zrange(key, 0, -1, std::back_inserter(all));
    lines.push_back("reply " + text_of_all(all));
    tell(lines, client->zscore(key, "a"));
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

static void functions(Client client, const std::string &key, Lines &lines)
{
    tell(lines, client->function_load(FUNCTIONS, true));
    for (const char *number : {"7", "8"})
        tell(lines, client->fcall<long long>("tested_add", {key}, {number}));
}

// An entry of a stream, and of all streams what one read has brought.
using Fields = std::vector<std::pair<std::string, std::string>>;
using Entry = std::pair<std::string, redis::Optional<Fields>>;
using Read = std::vector<std::pair<std::string, std::vector<Entry>>>;

static std::string text_of_entries(const std::vector<Entry> &entries)
{
    std::string all;

    for (const auto &entry : entries)
        all += text(entry.first) + ": " + (entry.second ? text_of_all(*entry.second) : "none") + " ";
    return all;
}

static void tell_read(Lines &lines, const Read &read)
{
    std::string entries = read.empty() ? "" : " " + text_of_entries(read[0].second);

    lines.push_back("reply " + std::to_string(read.size()) + entries);
}

static void streams(Client client, const std::string &key, Lines &lines)
{
    Read first, second, none;
    std::vector<std::pair<std::string, std::string>> consumers;
    std::vector<Entry> all;

    for (int number = 1; number <= 5; number++) {
        Fields fields = {{"number", std::to_string(number)}};
        tell(lines, client->xadd(key, "1-" + std::to_string(number), fields.begin(), fields.end()));
    }
    client->xgroup_create(key, "group", "0");
    client->xreadgroup("group", "one", key, ">", 3, std::back_inserter(first));
    tell_read(lines, first);
    tell(lines, client->xack(key, "group", {"1-1", "1-2"}));
    auto pending = client->xpending(key, "group", std::back_inserter(consumers));
    tell(lines, std::get<0>(pending));
    lines.push_back("reply " + text_of_all(consumers));
    client->xreadgroup("group", "two", key, ">", 20ms, std::back_inserter(second));
    tell_read(lines, second);
    client->xreadgroup("group", "two", key, ">", 20ms, std::back_inserter(none));
    tell_read(lines, none);
    client->xrange(key, "-", "+", std::back_inserter(all));
    lines.push_back("reply " + text_of_entries(all));
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

static void big(Client client, const std::string &key, Lines &lines)
{
    std::string value(8 * 131072, 'b');

    tell(lines, client->set(key, value));
    tell(lines, *client->get(key) == value);
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
    {"refused", refused},
    {"hashes", hashes},
    {"lists", lists},
    {"sorted_sets", sorted_sets},
    {"pipeline", pipeline},
    {"transaction", transaction},
    {"watch", watch},
    {"script", script},
    {"functions", functions},
    {"scan", scan},
    {"big", big},
    {"streams", streams},
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
