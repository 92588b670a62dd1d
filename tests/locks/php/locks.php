<?php
// Locks in PHP: HOST PORT LIBRARY. The protocol is told in tests/locks/laboratory.py.

[, $host, $port, $library] = $argv;

interface Library
{
    /** What has a method release(), or null when the lock is taken. */
    public function acquire(string $name, int $lease_ms): ?object;
}

/** Leases are whole seconds. */
class Laravel implements Library
{
    private $store;

    public function __construct(string $host, int $port)
    {
        require_once 'Illuminate/Redis/autoload.php';
        require_once 'Illuminate/Cache/autoload.php';
        $server = ['host' => $host, 'port' => $port, 'database' => 0];
        $manager = new Illuminate\Redis\RedisManager(null, 'phpredis', ['default' => $server]);
        $this->store = new Illuminate\Cache\RedisStore($manager, '', 'default');
        $manager->connection()->ping();
    }

    public function acquire(string $name, int $lease_ms): ?object
    {
        $lock = $this->store->lock($name, intdiv($lease_ms, 1000));
        return $lock->get() ? $lock : null;
    }
}

class Symfony implements Library
{
    private $factory;

    public function __construct(string $host, int $port)
    {
        require_once 'Symfony/Component/Lock/autoload.php';
        $redis = new Redis();
        $redis->connect($host, $port);
        $this->factory = new Symfony\Component\Lock\LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis));
    }

    public function acquire(string $name, int $lease_ms): ?object
    {
        $lock = $this->factory->createLock($name, $lease_ms / 1000, false);
        return $lock->acquire() ? $lock : null;
    }
}

function answer(string $text): void
{
    fwrite(STDOUT, $text . "\n");
}

function main(Library $locks): void
{
    $held = [];
    answer('ready');
    while (($line = fgets(STDIN)) !== false) {
        [$command, $name, $lease_ms] = explode(' ', trim($line) . ' 0');
        if ($command === 'acquire') {
            $lock = $locks->acquire($name, (int) $lease_ms);
            if ($lock !== null) {
                $held[$name] = $lock;
            }
            answer($lock !== null ? 'yes' : 'no');
        } else {
            answer($held[$name]->release() === false ? 'no' : 'yes');
            unset($held[$name]);
        }
    }
}

$libraries = ['laravel' => 'Laravel', 'symfony' => 'Symfony'];
main(new $libraries[$library]($host, (int) $port));
