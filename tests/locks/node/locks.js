// Locks in JavaScript: HOST PORT LIBRARY. The protocol is told in tests/locks/laboratory.py.
const { randomUUID } = require('crypto');
const readline = require('readline');
const Redis = require('ioredis');
const Redlock4 = require('redlock4');
const { default: Redlock5, ExecutionError } = require('redlock5');
const { Mutex, Semaphore } = require('redis-semaphore');

const [host, port, library] = process.argv.slice(2);
// Several ports are those of the masters of a RedLock.
const masters = port.split(',').map((one) => new Redis({ host, port: Number(one) }));
const [redis] = masters;

const COMPARE_AND_DELETE =
  'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

// Each gives a function that releases the lock, with another, extend, where the library has it; or null if the lock is
// taken.

async function acquireByHand(name, lease) {
  const token = randomUUID();
  if ((await redis.set(name, token, 'PX', lease, 'NX')) !== 'OK') return null;
  return async () => (await redis.eval(COMPARE_AND_DELETE, 1, name, token)) === 1;
}

async function acquireRedlock4(name, lease) {
  const redlock = new Redlock4([redis], { retryCount: 0 });
  try {
    const lock = await redlock.lock(name, lease);
    const release = async () => {
      await lock.unlock();
      return true;
    };
    return Object.assign(release, { extend: (longer) => lock.extend(longer) });
  } catch (error) {
    if (error instanceof Redlock4.LockError) return null;
    throw error;
  }
}

async function acquireRedlock5(name, lease) {
  const redlock = new Redlock5(masters, { retryCount: 0 });
  try {
    let lock = await redlock.acquire([name], lease);
    const release = async () => {
      await lock.release();
      return true;
    };
    const extend = async (longer) => {
      lock = await lock.extend(longer);
    };
    return Object.assign(release, { extend });
  } catch (error) {
    if (error instanceof ExecutionError) return null;
    throw error;
  }
}

// One value over two keys.
async function acquireRedlock5OfTwo(name, lease) {
  const redlock = new Redlock5([redis], { retryCount: 0 });
  try {
    const lock = await redlock.acquire([name, `${name}:second`], lease);
    return async () => {
      await lock.release();
      return true;
    };
  } catch (error) {
    if (error instanceof ExecutionError) return null;
    throw error;
  }
}

// The library renews until the routine has ended.
function acquireRedlock5Using(name, lease) {
  const redlock = new Redlock5([redis], { retryCount: 0 });
  return new Promise((resolve, reject) => {
    const routine = (signal) =>
      new Promise((finish) => {
        resolve(async () => {
          finish();
          await used;
          return !signal.aborted;
        });
      });
    const used = redlock.using([name], lease, { automaticExtensionThreshold: lease / 2 }, routine);
    used.catch((error) => (error instanceof ExecutionError ? resolve(null) : reject(error)));
  });
}

function fromRedisSemaphore(make, options) {
  return async (name, lease) => {
    const lost = (error) => process.stdout.write(`error ${error.message}\n`);
    const lock = make(name, { lockTimeout: lease, acquireAttemptsLimit: 1, onLockLost: lost, ...options });
    if (!(await lock.tryAcquire())) return null;
    return async () => {
      await lock.release();
      return true;
    };
  };
}

const makeMutex = (name, options) => new Mutex(redis, name, options);
const makeSemaphore = (name, options) => new Semaphore(redis, name, 1, options);
const NO_RENEWAL = { refreshInterval: 0 };

const libraries = {
  'ioredis': acquireByHand,
  'node-redlock-4': acquireRedlock4,
  'node-redlock-5': acquireRedlock5,
  'node-redlock-5-two-keys': acquireRedlock5OfTwo,
  'node-redlock-5-using': acquireRedlock5Using,
  'redis-semaphore-mutex': fromRedisSemaphore(makeMutex, NO_RENEWAL),
  'redis-semaphore-semaphore': fromRedisSemaphore(makeSemaphore, NO_RENEWAL),
  'redis-semaphore-mutex-renewed': fromRedisSemaphore(makeMutex, {}),
  'redis-semaphore-semaphore-renewed': fromRedisSemaphore(makeSemaphore, {}),
};

async function main() {
  const acquire = libraries[library];
  const held = new Map();
  await redis.ping();
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, name, lease] = line.split(' ');
    if (command === 'acquire') {
      const release = await acquire(name, Number(lease));
      if (release) held.set(name, release);
      console.log(release ? 'yes' : 'no');
    } else if (command === 'extend') {
      await held.get(name).extend(Number(lease));
      console.log('yes');
    } else {
      console.log((await held.get(name)()) ? 'yes' : 'no');
      held.delete(name);
    }
  }
  process.exit(0);
}

main().catch((error) => {
  console.log(`error ${error.stack.replace(/\n/g, ' ')}`);
  process.exit(1);
});
