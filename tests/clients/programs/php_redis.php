<?php
// Exercises the redis extension of PHP: HOST PORT. Prints "fine" at its end.
[, $host, $port] = $argv;

function check(bool $condition, string $what): void
{
    if (!$condition) {
        fwrite(STDERR, "failed: $what\n");
        exit(1);
    }
}

function open(string $host, int $port, bool $persistent = false): Redis
{
    $redis = new Redis();
    check($persistent ? $redis->pconnect($host, $port, 10.0) : $redis->connect($host, $port, 10.0), 'connect');
    $redis->setOption(Redis::OPT_READ_TIMEOUT, 10);
    return $redis;
}

$redis = open($host, (int) $port);
$redis->flushAll();
$binary = str_repeat(implode('', array_map('chr', range(0, 255))), 5000);
check($redis->set('k', $binary), 'set');
check($redis->get('k') === $binary, 'get');
check($redis->get('none') === false, 'nil');
check($redis->client('setname', 'php-client'), 'setname');
check($redis->client('getname') === 'php-client', 'getname');

$pipeline = $redis->pipeline();
for ($i = 0; $i < 1000; $i++) {
    $pipeline->set("k$i", (string) $i)->get("k$i");
}
$replies = $pipeline->exec();
for ($i = 0; $i < 1000; $i++) {
    check($replies[2 * $i] === true && $replies[2 * $i + 1] === (string) $i, 'pipeline');
}

check($redis->multi()->set('m', '1')->incr('m')->exec() === [true, 2], 'multi');
$other = open($host, (int) $port);
$redis->watch('watched');
$other->set('watched', 'theirs');
check($redis->multi()->set('watched', 'mine')->exec() === false, 'watch conflict');
check($redis->get('watched') === 'theirs', 'after the conflict');

$other->rPush('list', 'v');
check($redis->blPop(['list'], 5) === ['list', 'v'], 'blpop');
check($redis->blPop(['none'], 1) === [], 'blpop without');

check($other->select(2), 'select');
$other->set('k', 'in 2');
check($redis->get('k') === $binary, 'databases');
check($redis->eval('return {KEYS[1], ARGV[1]}', ['x', 'y'], 1) === ['x', 'y'], 'eval');
check($redis->rawCommand('nonsense') === false, 'an error');
check(str_contains($redis->getLastError(), 'unknown command'), 'error text');
check($redis->xAdd('stream', '1-1', ['f' => 'v']) === '1-1', 'xadd');
check($redis->xRead(['stream' => '0'], 1, 100) === ['stream' => ['1-1' => ['f' => 'v']]], 'xread');
for ($i = 0; $i < 5; $i++) {
    check(open($host, (int) $port, true)->ping() === true, 'persistent');
}
$redis->close();
echo "fine\n";
