<?php
// Predis with its default settings. scripts/clients_program.py tells what a program is asked and answers.
require __DIR__ . '/Protocol.php';
require 'Predis/Autoloader.php';

Predis\Autoloader::register();

function connect(array $more = []): Predis\Client
{
    global $argv;
    $by = getenv('TESTED_BY_TLS') ? ['scheme' => 'tls'] : [];
    $client = new Predis\Client($more + $by + ['host' => $argv[1], 'port' => (int) $argv[2]]);
    $client->connect();
    return $client;
}

function told($reply)
{
    return $reply instanceof Predis\Response\ResponseInterface ? (string) $reply : $reply;
}

function heard(object $message): array
{
    return (array) $message;
}

$subscriptions = [];

serve(Predis\Client::VERSION, 'connect', [
    'strings' => fn ($client, $key) => [
        told($client->set($key, 'first')), $client->get($key), $client->get("$key:none"), $client->incr("$key:count"),
        told($client->set("$key:timed", 'second', 'EX', 1000)), $client->mget($key, "$key:timed", "$key:none"),
    ],
    'pipeline' => fn ($client, $key) => $client->pipeline(function ($batch) use ($key) {
        for ($number = 0; $number < 50; $number++) {
            $batch->rpush($key, [$number]);
        }
        $batch->lrange($key, 0, -1);
    }),
    'transaction' => fn ($client, $key) => array_map('told', $client->transaction()->set($key, 1)->incr($key)->get($key)->execute()),
    'watch' => fn ($client, $key) => array_map('told', $client->transaction(
        ['watch' => $key, 'cas' => true],
        function ($batch) use ($key) {
            $value = (int) $batch->get($key);
            $batch->multi();
            $batch->set($key, $value + 5);
            $batch->get($key);
        }
    )),
    'script' => fn ($client, $key) => [$client->eval(ADD, 1, $key, 7), $client->eval(ADD, 1, $key, 8)],
    'scan' => function ($client, $key) {
        for ($number = 0; $number < 30; $number++) {
            $client->set("$key:$number", $number);
        }
        $found = array_unique(iterator_to_array(new Predis\Collection\Iterator\Keyspace($client, "$key:*"), false));
        sort($found);
        return $found;
    },
    'greeting' => function ($client, $key) {
        $replies = [];
        foreach ([['database' => 3], ['username' => 'tested', 'password' => 'secret'], ['password' => 'wrong']] as $more) {
            try {
                $own = connect($more);
                $replies[] = [told($own->set($key, 'there')), $client->get($key), $own->executeRaw(['ACL', 'WHOAMI'])];
            } catch (Predis\PredisException $error) {
                $replies[] = preg_replace('/ \\[.*/', '', $error->getMessage()); // behind it is the address
            }
        }
        return $replies;
    },
    'abandoned' => function ($client, $key) {
        $blocked = fn () => $client->info('clients')['Clients']['blocked_clients'];
        $own = connect();
        $own->getConnection()->writeRequest($own->createCommand('blpop', [[$key], 0]));
        $replies = [blocked($blocked, 1)];
        $own->disconnect();
        return [...$replies, blocked($blocked, 0), $client->rpush($key, ['kept']), $client->lrange($key, 0, -1)];
    },
    'timeouts' => function ($client, $key) {
        $own = connect(['read_write_timeout' => 1]);
        try {
            $late = $own->blpop([$key], 4);
        } catch (Predis\Connection\ConnectionException $error) {
            $late = 'timed out';
        }
        return [$late, told($own->set("$key:after", 'mine')), $own->get("$key:after")];
    },
    'blocking' => function ($client, $key) {
        $replies = [$client->blpop([$key], 0.1), $client->rpush($key, ['there']), $client->blpop([$key], PATIENCE)];
        $child = later(fn () => connect()->rpush($key, ['pushed']));
        $replies[] = $client->blpop([$key], PATIENCE);
        pcntl_waitpid($child, $status);
        return $replies;
    },
    'subscribe' => function ($client, $key) use (&$subscriptions) {
        $loop = $subscriptions[$key] = connect(['read_write_timeout' => PATIENCE])->pubSubLoop();
        $loop->subscribe($key);
        return [heard($loop->current()), $client->publish($key, 'hello'), heard($loop->current())];
    },
    'unsubscribe' => function ($client, $key) use (&$subscriptions) {
        $channel = str_replace('unsubscribe', 'subscribe', $key);
        $loop = $subscriptions[$channel];
        unset($subscriptions[$channel]);
        $loop->unsubscribe($channel);
        return [heard($loop->current()), $loop->getClient()->ping() == 'PONG'];
    },
    'patterns' => function ($client, $key) {
        $loop = connect(['read_write_timeout' => PATIENCE])->pubSubLoop();
        $loop->psubscribe("$key:*");
        $replies = [heard($loop->current()), $client->publish("$key:one", 'hello'), heard($loop->current())];
        $loop->stop(true);
        return $replies;
    },
    'killed' => function ($client, $key) {
        $client->set($key, 'before');
        $lost = yield from untilKilled(fn () => $client->get($key) !== null);
        return [$lost, told($client->set("$key:after", 'there')), $client->get("$key:after")];
    },
    'cluster_mode' => function ($client, $key) {
        global $argv;
        $cluster = new Predis\Client(["tcp://$argv[1]:$argv[2]"], ['cluster' => 'redis']);
        $names = array_map(fn ($number) => "$key:$number", range(0, 19));
        $replies = array_map(fn ($name) => [told($cluster->set($name, $name)), $cluster->get($name)], $names);
        $appended = $cluster->pipeline(fn ($batch) => array_map(fn ($name) => $batch->append($name, '!'), $names));
        return [
            ...$replies, $appended, $cluster->mget(["{{$key}}a", "{{$key}}b"]), $cluster->eval(ADD, 1, "{{$key}}b", 7),
            $cluster->blpop(["{{$key}}c"], 1), array_map(fn ($name) => $cluster->del($name), $names),
        ];
    },
]);
