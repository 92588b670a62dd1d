// node-redis with its default settings.
const { createClient, defineScript } = require('redis');
const { version } = require('@redis/client/package.json');
const { serve, pause, until, message, host, port, tlsOptions } = require('./protocol');

const add = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}",
  parseCommand(parser, key, number) {
    parser.pushKey(key);
    parser.push(String(number));
  },
  transformReply: undefined,
});

async function connect(options) {
  const tls = tlsOptions();
  const client = createClient({ socket: tls ? { host, port, tls: true, ...tls } : { host, port }, scripts: { add }, ...options });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  return client.connect();
}

const subscribers = new Map();

const features = {
  async *strings(client, key) {
    yield client.set(key, 'first');
    yield client.get(key);
    yield client.get(`${key}:none`);
    for (let number = 0; number < 3; number++) yield client.incr(`${key}:count`);
    yield client.set(`${key}:timed`, 'second', { EX: 1000 });
    yield client.mGet([key, `${key}:timed`, `${key}:none`]);
  },

  async *refused(client, key) {
    await client.set(key, 'no number');
    yield client.incr(key).catch((error) => error.message);
  },

  async *hashes(client, key) {
    yield client.hSet(key, { one: 1, two: 2 });
    yield client.hGetAll(key);
    yield client.hIncrBy(key, 'two', 40);
  },

  async *lists(client, key) {
    yield client.rPush(key, ['a', 'b', 'c']);
    yield client.lRange(key, 0, -1);
    yield client.lPop(key);
  },

  async *sorted_sets(client, key) {
    yield client.zAdd(key, [{ score: 1.5, value: 'a' }, { score: 2, value: 'b' }]);
    yield client.zRangeWithScores(key, 0, -1);
    yield client.zScore(key, 'a');
  },

  // What is asked for in one turn goes out in one write.
  async *pipeline(client, key) {
    const replies = [];
    for (let number = 0; number < 50; number++) replies.push(client.rPush(key, String(number)));
    replies.push(client.lRange(key, 0, -1));
    yield Promise.all(replies);
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
    for await (const keys of client.scanIterator({ MATCH: `${key}:*` })) keys.forEach((each) => found.add(each));
    yield [...found].sort();
  },

  async *big(client, key) {
    const value = 'headgate'.repeat(131072);
    yield client.set(key, value);
    yield (await client.get(key)) === value;
  },

  async *blocking(client, key) {
    yield client.blPop(key, 1);
    await client.rPush(key, 'there');
    yield client.blPop(key, 20);
    const other = await connect();
    const waiting = client.blPop(key, 20);
    await pause(100);
    await other.rPush(key, 'pushed');
    yield waiting;
    await other.close();
  },

  async *subscribe(client, key) {
    const subscriber = await client.duplicate().connect();
    subscribers.set(key, subscriber);
    const { arrive, came } = message();
    await subscriber.subscribe(key, (text, channel) => arrive([channel, text]));
    yield client.publish(key, 'hello');
    yield came;
  },

  async *unsubscribe(_client, key) {
    const subscriber = subscribers.get(key.replace('unsubscribe', 'subscribe'));
    yield subscriber.unsubscribe();
    yield subscriber.ping();
    await subscriber.close();
  },

  async *caching(client, key) {
    const cached = await connect({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } });
    await client.set(key, 'old');
    for (let number = 0; number < 3; number++) yield cached.get(key);
    await client.set(key, 'new');
    yield until(() => cached.get(key), 'new');
    await cached.close();
  },
};

serve(version, connect, features, (client) => client.close());
