<?php
// Predis with its default settings. scripts/clients_program.py tells what a program is asked and answers.
require __DIR__ . '/Protocol.php';
require 'Predis/Autoloader.php';

Predis\Autoloader::register();

function connect(array $more = []): Predis\Client
{
    global $argv;
    $client = new Predis\Client($more + ['host' => $argv[1], 'port' => (int) $argv[2]]);
    $client->connect();
    return $client;
}

function told($reply)
{
    return $reply instanceof Predis\Response\ResponseInterface ? (string) $reply : $reply;
}

serve(Predis\Client::VERSION, 'connect', [
    'strings' => fn ($client, $key) => [
        told($client->set($key, 'first')), $client->get($key), $client->get("$key:none"), $client->incr("$key:count"),
        told($client->set("$key:timed", 'second', 'EX', 1000)), $client->mget($key, "$key:timed", "$key:none"),
    ],
    'refused' => function ($client, $key) {
        $client->set($key, 'none');
        try {
            return [$client->incr($key)];
        } catch (Predis\Response\ServerException $error) {
            return [$error->getMessage()];
        }
    },
    'hashes' => fn ($client, $key) => [
        told($client->hmset($key, ['one' => 1, 'two' => 2])), sorted($client->hgetall($key)), $client->hincrby($key, 'two', 40),
    ],
    'lists' => fn ($client, $key) => [$client->rpush($key, ['a', 'b', 'c']), $client->lrange($key, 0, -1), $client->lpop($key)],
    'sorted_sets' => fn ($client, $key) => [
        $client->zadd($key, ['a' => 1.5, 'b' => 2]), $client->zrange($key, 0, -1, ['withscores' => true]),
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
    'big' => function ($client, $key) {
        $value = str_repeat('headgate', 131072);
        return [told($client->set($key, $value)), $client->get($key) === $value];
    },
    'greeting' => function ($client, $key) {
        $own = connect(['database' => 3]);
        return [told($own->set($key, 'there')), $client->get($key)];
    },
]);
