<?php
// What a program of tests/newest is asked, and how it answers: scripts/clients_program.py. PHP has no threads: what is
// to be done with all clients at once is done one after the other, unless the feature is a generator: these take turns.

const ADD = "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}";
// How long something is waited for that should happen at once, in seconds.
const PATIENCE = 20;

// A process of its own that does something in a moment, with connections of its own, and then is gone.
function later(callable $work): int
{
    $child = pcntl_fork();
    if ($child === 0) {
        usleep(100000);
        $work();
        posix_kill(getmypid(), SIGKILL); // what it has inherited is not its own to close
    }
    return $child;
}

// Asks until Redis has been killed and has nothing any more; get: of one key, or throws. A generator, whose value is what
// it answers.
function untilKilled(callable $get): Generator
{
    $lost = 0;
    for ($end = microtime(true) + PATIENCE; microtime(true) < $end; usleep(1000)) {
        yield;
        try {
            if (!$get()) {
                break;
            }
        } catch (Exception $error) {
            $lost++;
        }
    }
    return "lost=$lost";
}

function complaint(Throwable $error): string
{
    return 'error ' . str_replace("\n", ' ', $error->getMessage());
}

function told_of(array $replies): array
{
    return array_map(fn ($reply) => 'reply ' . json_encode($reply), $replies);
}

// The lines, or a generator that has them in the end.
function outcome(?callable $feature, object $client, string $key)
{
    if ($feature === null) {
        return ['unsupported'];
    }
    try {
        $replies = $feature($client, $key);
        return $replies instanceof Generator ? $replies : told_of($replies);
    } catch (Throwable $error) {
        return [complaint($error)];
    }
}

// Gives each generator a turn, until all are done.
function finished(array $outcomes): array
{
    while ($open = array_filter($outcomes, fn ($outcome) => $outcome instanceof Generator)) {
        foreach ($open as $number => $generator) {
            try {
                $generator->next();
                if (!$generator->valid()) {
                    $outcomes[$number] = told_of($generator->getReturn());
                }
            } catch (Throwable $error) {
                $outcomes[$number] = [complaint($error)];
            }
        }
    }
    return $outcomes;
}

// features: functions that give a list of replies, or a generator whose value it is; each given a client and a key of its
// own.
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
        $outcomes = [];
        foreach ($clients as $number => $client) {
            $outcomes[] = outcome($features[$name] ?? null, $client, "newest:$name:$number");
        }
        foreach (finished($outcomes) as $lines) {
            foreach ($lines as $text) {
                echo $text, "\n";
            }
        }
        echo "done\n";
    }
}
