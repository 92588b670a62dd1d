// rate-limiter-flexible over ioredis.
const Redis = require('ioredis');
const { RateLimiterRedis, BurstyRateLimiter } = require('rate-limiter-flexible');
const { version } = require('rate-limiter-flexible/package.json');
const { serve, host, port, tlsOptions } = require('./protocol');

async function connect() {
  const tls = tlsOptions();
  const client = new Redis({ host, port, enableOfflineQueue: false, ...(tls ? { tls } : {}) });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

const told = (result) => (result instanceof Error ? result.message : [result.consumedPoints, result.remainingPoints]);

const features = {
  async *limits(client, key) {
    const limiter = new RateLimiterRedis({ storeClient: client, keyPrefix: key, points: 5, duration: 1000 });
    for (let number = 0; number < 7; number++) yield limiter.consume('user').then(told, told);
    yield limiter.get('user').then(told);
    yield limiter.reward('user', 3).then(told);
    yield limiter.penalty('user', 1).then(told);
    yield limiter.block('other', 1000).then(told);
    yield limiter.consume('other').then(told, told);
    yield limiter.delete('user');
    const at_once = Array.from({ length: 10 }, () => limiter.consume('third').then(() => 'passed', () => 'refused'));
    yield (await Promise.all(at_once)).sort();

    const more = new RateLimiterRedis({ storeClient: client, keyPrefix: `${key}:burst`, points: 2, duration: 2000 });
    const bursty = new BurstyRateLimiter(limiter, more);
    for (let number = 0; number < 8; number++) yield bursty.consume('fourth').then(() => 'passed', () => 'refused');
    const even = new RateLimiterRedis({ storeClient: client, keyPrefix: `${key}:in`, points: 2, duration: 1000, inMemoryBlockOnConsumed: 2 });
    for (let number = 0; number < 4; number++) yield even.consume('fifth').then(() => 'passed', () => 'refused');
  },
};

serve(version, connect, features, (client) => client.quit());
