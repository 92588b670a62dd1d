// ioredis with its default settings.
const { readFileSync } = require('fs');
const { dirname, join } = require('path');
const Redis = require('ioredis');
const { serve, pause, message, host, port, tlsOptions } = require('./protocol');

const { version } = JSON.parse(readFileSync(join(dirname(require.resolve('ioredis')), '..', 'package.json')));

async function connect() {
  const tls = tlsOptions();
  const client = new Redis(tls ? { host, port, tls } : { host, port });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  client.defineCommand('add', {
    numberOfKeys: 1,
    lua: "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}",
  });
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

const subscribers = new Map();

const features = {
  async *strings(client, key) {
    yield client.set(key, 'first');
    yield client.get(key);
    yield client.get(`${key}:none`);
    for (let number = 0; number < 3; number++) yield client.incr(`${key}:count`);
    yield client.set(`${key}:timed`, 'second', 'EX', 1000);
    yield client.mget(key, `${key}:timed`, `${key}:none`);
  },

  async *refused(client, key) {
    await client.set(key, 'no number');
    yield client.incr(key).catch((error) => error.message);
  },

  async *hashes(client, key) {
    yield client.hset(key, { one: 1, two: 2 });
    yield client.hgetall(key);
    yield client.hincrby(key, 'two', 40);
  },

  async *lists(client, key) {
    yield client.rpush(key, 'a', 'b', 'c');
    yield client.lrange(key, 0, -1);
    yield client.lpop(key);
  },

  async *sorted_sets(client, key) {
    yield client.zadd(key, 1.5, 'a', 2, 'b');
    yield client.zrange(key, 0, -1, 'WITHSCORES');
    yield client.zscore(key, 'a');
  },

  async *pipeline(client, key) {
    const batch = client.pipeline();
    for (let number = 0; number < 50; number++) batch.rpush(key, number);
    yield batch.lrange(key, 0, -1).exec();
  },

  async *transaction(client, key) {
    yield client.multi().set(key, 1).incr(key).get(key).exec();
  },

  async *watch(client, key) {
    await client.set(key, 5);
    await client.watch(key);
    const value = Number(await client.get(key));
    yield client.multi().set(key, value * 2).get(key).exec();
  },

  async *script(client, key) {
    for (const number of [7, 8]) yield client.add(key, number);
  },

  async *scan(client, key) {
    for (let number = 0; number < 30; number++) await client.set(`${key}:${number}`, number);
    const found = new Set();
    for await (const keys of client.scanStream({ match: `${key}:*` })) keys.forEach((each) => found.add(each));
    yield [...found].sort();
  },

  async *big(client, key) {
    const value = 'headgate'.repeat(131072);
    yield client.set(key, value);
    yield (await client.get(key)) === value;
  },

  async *blocking(client, key) {
    yield client.blpop(key, 1);
    await client.rpush(key, 'there');
    yield client.blpop(key, 20);
    const other = await connect();
    const waiting = client.blpop(key, 20);
    await pause(100);
    await other.rpush(key, 'pushed');
    yield waiting;
    await other.quit();
  },

  async *subscribe(client, key) {
    const subscriber = client.duplicate();
    subscribers.set(key, subscriber);
    const { arrive, came } = message();
    subscriber.on('message', (channel, text) => arrive([channel, text]));
    yield subscriber.subscribe(key);
    yield client.publish(key, 'hello');
    yield came;
  },

  async *unsubscribe(_client, key) {
    const subscriber = subscribers.get(key.replace('unsubscribe', 'subscribe'));
    yield subscriber.unsubscribe();
    yield subscriber.ping();
    await subscriber.quit();
  },
};

serve(version, connect, features, (client) => client.quit());
