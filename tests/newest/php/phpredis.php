<?php
// phpredis with its default settings. scripts/clients_program.py tells what a program is asked and answers.
require __DIR__ . '/Protocol.php';

function connect(): Redis
{
    global $argv;
    $client = new Redis();
    $client->connect((getenv('TESTED_BY_TLS') ? 'tls://' : '') . $argv[1], (int) $argv[2]);
    return $client;
}

serve(phpversion('redis'), 'connect', [
    'strings' => fn ($client, $key) => [
        $client->set($key, 'first'), $client->get($key), $client->get("$key:none"), $client->incr("$key:count"),
        $client->set("$key:timed", 'second', ['ex' => 1000]), $client->mget([$key, "$key:timed", "$key:none"]),
    ],
    'refused' => fn ($client, $key) => [$client->set($key, 'none'), $client->incr($key), $client->getLastError()],
    'hashes' => fn ($client, $key) => [
        $client->hMSet($key, ['one' => 1, 'two' => 2]), sorted($client->hGetAll($key)), $client->hIncrBy($key, 'two', 40),
    ],
    'lists' => fn ($client, $key) => [$client->rPush($key, 'a', 'b', 'c'), $client->lRange($key, 0, -1), $client->lPop($key)],
    'sorted_sets' => fn ($client, $key) => [$client->zAdd($key, 1.5, 'a', 2, 'b'), $client->zRange($key, 0, -1, true)],
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
    'scan' => function ($client, $key) {
        for ($number = 0; $number < 30; $number++) {
            $client->set("$key:$number", $number);
        }
        $found = [];
        $cursor = null;
        while (($keys = $client->scan($cursor, "$key:*")) !== false) {
            $found = array_merge($found, $keys);
        }
        $found = array_unique($found);
        sort($found);
        return $found;
    },
    'big' => function ($client, $key) {
        $value = str_repeat('headgate', 131072);
        return [$client->set($key, $value), $client->get($key) === $value];
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
    'timeouts' => function ($client, $key) {
        $own = connect();
        $own->setOption(Redis::OPT_READ_TIMEOUT, 0.2);
        try {
            $late = $own->blPop($key, 2);
        } catch (RedisException $error) {
            $late = 'timed out';
        }
        $own->setOption(Redis::OPT_READ_TIMEOUT, 20);
        return [$late, $own->set("$key:after", 'mine'), $own->get("$key:after")];
    },
]);
