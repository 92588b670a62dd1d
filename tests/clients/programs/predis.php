<?php
// Exercises Predis: HOST PORT. Prints "fine" at its end.
require 'Predis/autoload.php';

[, $host, $port] = $argv;

function check(bool $condition, string $what): void
{
    if (!$condition) {
        fwrite(STDERR, "failed: $what\n");
        exit(1);
    }
}

$parameters = ['host' => $host, 'port' => (int) $port, 'timeout' => 10, 'read_write_timeout' => 10];
$redis = new Predis\Client($parameters);
$redis->flushall();
$value = str_repeat("binary\0\r\n", 20000);
check((string) $redis->set('k', $value) === 'OK', 'set');
check($redis->get('k') === $value, 'get');
check($redis->get('none') === null, 'nil');
check((string) $redis->client('setname', 'predis') === 'OK', 'setname');
check($redis->client('getname') === 'predis', 'getname');

$replies = $redis->pipeline(function ($pipeline) {
    for ($i = 0; $i < 500; $i++) {
        $pipeline->set("k$i", $i);
        $pipeline->get("k$i");
    }
});
for ($i = 0; $i < 500; $i++) {
    check((string) $replies[2 * $i] === 'OK' && $replies[2 * $i + 1] === (string) $i, 'pipeline');
}

$replies = $redis->transaction(function ($transaction) {
    $transaction->set('m', 1);
    $transaction->incr('m');
});
check((string) $replies[0] === 'OK' && $replies[1] === 2, 'transaction');

$other = new Predis\Client($parameters + ['database' => 3]);
$other->set('k', 'in 3');
check($redis->get('k') === $value, 'databases');
$redis->rpush('list', ['v']);
check($redis->blpop(['list'], 5) === ['list', 'v'], 'blpop');

$loop = (new Predis\Client($parameters))->pubSubLoop();
$loop->subscribe('a', 'b');
$seen = [];
foreach ($loop as $message) {
    if ($message->kind === 'subscribe' && $message->payload === 2) {
        $redis->publish('a', 'first');
        $redis->publish('b', 'last');
    } elseif ($message->kind === 'message') {
        $seen[] = [$message->channel, $message->payload];
        if ($message->payload === 'last') {
            $loop->unsubscribe();
        }
    }
}
check($seen === [['a', 'first'], ['b', 'last']], 'messages');

try {
    $redis->executeRaw(['NONSENSE'], $error);
    check($error === true, 'an error');
} catch (Predis\Response\ServerException $exception) {
    check(str_contains($exception->getMessage(), 'unknown command'), 'error text');
}
echo "fine\n";
