<?php
// What a program of tests/newest is asked, and how it answers: scripts/clients_program.py. PHP has no threads: what is
// to be done with all clients at once is done one after the other.

const ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";

function sorted(array $map): array
{
    ksort($map);
    return $map;
}

function outcome(?callable $feature, object $client, string $key): array
{
    if ($feature === null) {
        return ['unsupported'];
    }
    try {
        return array_map(fn ($reply) => 'reply ' . json_encode($reply), $feature($client, $key));
    } catch (Throwable $error) {
        return ['error ' . str_replace("\n", ' ', $error->getMessage())];
    }
}

// features: functions that give a list of replies, each given a client and a key of its own.
function serve(string $version, callable $connect, array $features): void
{
    global $argv;
    $clients = [];
    for ($number = 0; $number < (int) $argv[3]; $number++) {
        $clients[] = $connect();
    }
    echo "version $version\nready\n";
    while (($line = fgets(STDIN)) !== false) {
        [, $name] = explode(' ', trim($line));
        foreach ($clients as $number => $client) {
            foreach (outcome($features[$name] ?? null, $client, "newest:$name:$number") as $text) {
                echo $text, "\n";
            }
        }
        echo "done\n";
    }
}
