<?php
// phpredis with its default settings. scripts/clients_program.py tells what a program is asked and answers.
require __DIR__ . '/Protocol.php';

function connect(?Redis $client = null): Redis
{
    global $argv;
    $client ??= new Redis();
    $client->connect((getenv('TESTED_BY_TLS') ? 'tls://' : '') . $argv[1], (int) $argv[2]);
    return $client;
}

// What comes to a subscriber. Its loop ends with its connection only, and by an exception.
function heard(string $channel): array
{
    $came = [];
    $own = connect();
    $own->setOption(Redis::OPT_READ_TIMEOUT, PATIENCE);
    $child = later(function () use ($channel) {
        for ($client = connect(); $client->publish($channel, 'hello') === 0; usleep(5000)) {
            // nobody is subscribed yet
        }
    });
    try {
        $own->subscribe([$channel], function ($subscriber, ...$message) use (&$came) {
            $came[] = $message;
            $subscriber->close();
        });
    } catch (RedisException $end) {
        $came[] = preg_replace('/ on connection.*/', '', $end->getMessage());
    }
    pcntl_waitpid($child, $status);
    return $came;
}

function nodes(): array
{
    global $argv;
    return ["$argv[1]:$argv[2]"];
}

serve(phpversion('redis'), 'connect', [
    'strings' => fn ($client, $key) => [
        $client->set($key, 'first'), $client->get($key), $client->get("$key:none"), $client->incr("$key:count"),
        $client->set("$key:timed", 'second', ['ex' => 1000]), $client->mget([$key, "$key:timed", "$key:none"]),
    ],
    'pipeline' => function ($client, $key) {
        $batch = $client->pipeline();
        for ($number = 0; $number < 50; $number++) {
            $batch->rPush($key, $number);
        }
        return $batch->lRange($key, 0, -1)->exec();
    },
    'transaction' => fn ($client, $key) => $client->multi()->set($key, 1)->incr($key)->get($key)->exec(),
    'watch' => function ($client, $key) {
        $client->set($key, 5);
        $client->watch($key);
        $mine = $client->multi()->set($key, (int) $client->get($key) * 2)->exec();
        $client->watch($key);
        $other = connect();
        $other->set($key, 1);
        return [$mine, $client->multi()->set($key, 2)->exec(), $other->get($key)];
    },
    'script' => function ($client, $key) {
        $digest = $client->script('load', ADD);
        return array_map(fn ($number) => $client->evalSha($digest, [$key, $number], 1), [7, 8]);
    },
    'greeting' => function ($client, $key) {
        $replies = [];
        foreach ([['tested', 'secret'], ['tested', 'wrong']] as $user) {
            $own = connect();
            try {
                $replies[] = [$own->auth($user), $own->set($key, 'mine'), $own->rawCommand('ACL', 'WHOAMI')];
            } catch (RedisException $error) {
                $replies[] = $error->getMessage();
            }
        }
        $own = connect();
        $replies[] = [$own->select(3), $own->set($key, 'there'), $client->get($key), $own->client('setname', 'tested')];
        return $replies;
    },
    'blocking' => function ($client, $key) {
        // It takes whole seconds for this command.
        $nothing = $client->rawCommand('BLPOP', $key, '0.1');
        $replies = [$nothing, $client->rPush($key, 'there'), $client->blPop($key, PATIENCE)];
        $child = later(fn () => connect()->rPush($key, 'pushed'));
        $replies[] = $client->blPop($key, PATIENCE);
        pcntl_waitpid($child, $status);
        return $replies;
    },
    'subscribe' => fn ($client, $key) => heard($key),
    'killed' => function ($client, $key) {
        $client->set($key, 'before');
        $lost = yield from untilKilled(function () use ($client, $key) {
            try {
                return $client->exists($key) !== 0;
            } catch (RedisException $error) {
                @connect($client); // it does so once by itself, and is lost if there is no Redis at that moment
                throw $error;
            }
        });
        return [$lost, $client->set("$key:after", 'there'), $client->get("$key:after")];
    },
    'cluster_mode' => function ($client, $key) {
        $cluster = new RedisCluster(null, nodes(), PATIENCE, PATIENCE);
        $names = array_map(fn ($number) => "$key:$number", range(0, 19));
        $replies = array_map(fn ($name) => [$cluster->set($name, $name), $cluster->get($name)], $names);
        return [
            ...$replies, $cluster->mget($names), $cluster->multi()->set("{{$key}}a", 1)->incr("{{$key}}a")->exec(),
            $cluster->eval(ADD, ["{{$key}}b", 7], 1), $cluster->blPop(["{{$key}}c"], 1), $cluster->del($names),
        ];
    },
]);
