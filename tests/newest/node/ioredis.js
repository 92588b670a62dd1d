// ioredis with its default settings.
const { readFileSync } = require('fs');
const { dirname, join } = require('path');
const Redis = require('ioredis');
const { serve, common, pause, message, host, port, tlsOptions } = require('./protocol');

const { version } = JSON.parse(readFileSync(join(dirname(require.resolve('ioredis')), '..', 'package.json')));

async function connect(options) {
  const tls = tlsOptions();
  const client = new Redis({ host, port, ...(tls ? { tls } : {}), ...options });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  client.defineCommand('add', {
    numberOfKeys: 1,
    lua: "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}",
  });
  await new Promise((resolve, reject) => {
    client.once('ready', resolve);
    if (options) client.once('error', reject);
  });
  return client;
}

const subscribers = new Map();

const features = {
  ...common,

  async *strings(client, key) {
    yield client.set(key, 'first');
    yield client.get(key);
    yield client.get(`${key}:none`);
    for (let number = 0; number < 3; number++) yield client.incr(`${key}:count`);
    yield client.set(`${key}:timed`, 'second', 'EX', 1000);
    yield client.mget(key, `${key}:timed`, `${key}:none`);
  },

  async *pipeline(client, key) {
    const batch = client.pipeline();
    for (let number = 0; number < 50; number++) batch.rpush(key, number);
    yield batch.lrange(key, 0, -1).exec();
  },

  // Every way to begin a connection: names, users, databases, wrong passwords.
  async *greeting(client, key) {
    const ways = [{ connectionName: 'tested' }, { db: 3 }, { username: 'tested', password: 'secret' }];
    for (const options of [...ways, { protocol: 2 }, { username: 'tested', password: 'wrong', retryStrategy: null }]) {
      const own = await connect(options).catch((error) => error.message);
      if (typeof own === 'string') {
        yield own;
        continue;
      }
      await own.set(key, options.username || 'nobody');
      yield [await own.get(key), await client.get(key), await own.client('GETNAME'), await own.acl('WHOAMI')];
      await own.quit();
    }
  },

  async *concurrent(_client, key) {
    const own = await connect({ enableAutoPipelining: true });
    const work = async (number) => {
      await own.set(`${key}:${number}`, number);
      return [await own.get(`${key}:${number}`), (await own.incr(key)) > 0];
    };
    yield Promise.all(Array.from({ length: 100 }, (_, number) => work(number)));
    await own.quit();
  },

  // What comes after a reply that nobody waits for any more is the right one.
  async *timeouts(_client, key) {
    const own = await connect();
    own.options.commandTimeout = 500; // of what is asked from here on
    yield own.blpop(key, 3).catch((error) => error.message);
    own.options.commandTimeout = undefined; // those behind it wait for as long as it takes
    yield [await own.set(`${key}:after`, 'mine'), await own.get(`${key}:after`), await own.echo(key)];
    await own.quit();
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

  // It learns where the slots are, and goes to the node of each key.
  async *cluster_mode(_client, key) {
    const names = Array.from({ length: 20 }, (_, number) => `${key}:${number}`);
    const cluster = new Redis.Cluster([{ host, port }]);
    cluster.on('error', (error) => process.stderr.write(`${error.stack}\n`));
    yield Promise.all(names.map((name) => cluster.set(name, name)));
    yield Promise.all(names.map((name) => cluster.get(name)));
    const tag = `{${key}}`;
    yield cluster.multi().set(`${tag}a`, 1).incr(`${tag}a`).get(`${tag}a`).exec();
    yield cluster.pipeline().rpush(`${tag}l`, 1, 2).lrange(`${tag}l`, 0, -1).exec();
    yield cluster.mget(`${tag}a`, `${tag}none`);
    yield cluster.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, `${tag}b`, 7);
    yield cluster.blpop(`${tag}c`, 1);
    const came = message();
    cluster.on('message', (channel, text) => came.arrive([channel, text]));
    yield cluster.subscribe(key);
    await cluster.publish(key, 'hello');
    yield came.came;
    yield Promise.all(names.map((name) => cluster.del(name)));
    await cluster.quit();
  },

  async *unsubscribe(_client, key) {
    const subscriber = subscribers.get(key.replace('unsubscribe', 'subscribe'));
    yield subscriber.unsubscribe();
    yield subscriber.ping();
    await subscriber.quit();
  },
};

serve(version, connect, features, (client) => client.quit());
