// redis-semaphore over ioredis: its mutex and its semaphores, which renew themselves.
const Redis = require('ioredis');
const { Mutex, Semaphore, MultiSemaphore } = require('redis-semaphore');
const { version } = require('redis-semaphore/package.json');
const { serve, pause, host, port, tlsOptions } = require('./protocol');

async function connect() {
  const tls = tlsOptions();
  const client = new Redis({ host, port, ...(tls ? { tls } : {}) });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

const impatient = { acquireTimeout: 50, retryInterval: 10, lockTimeout: 10000 };

const features = {
  async *locks(client, key) {
    const mutex = new Mutex(client, key, impatient);
    await mutex.acquire();
    yield [mutex.isAcquired, await client.exists(`mutex:${key}`)];
    yield new Mutex(client, key, impatient).acquire().catch((error) => error.constructor.name);
    await mutex.release();
    yield client.exists(`mutex:${key}`);

    const permits = [1, 2, 3].map(() => new Semaphore(client, key, 2, impatient));
    yield [await permits[0].tryAcquire(), await permits[1].tryAcquire(), await permits[2].tryAcquire()];
    await permits[0].release();
    yield permits[2].tryAcquire();
    await Promise.all([permits[1].release(), permits[2].release()]);

    const several = new MultiSemaphore(client, `${key}:multi`, 3, 2, impatient);
    await several.acquire();
    yield client.zcard(`semaphore:${key}:multi`);
    await several.release();

    const renewed = new Mutex(client, `${key}:renewed`, { lockTimeout: 2000, refreshInterval: 300 });
    await renewed.acquire();
    await pause(3000);
    yield client.exists(`mutex:${key}:renewed`);
    await renewed.release();
  },
};

serve(version, connect, features, (client) => client.quit());
