// node-redis with its default settings.
const { createClient, createClientPool, createCluster, defineScript } = require('redis');
const { version } = require('@redis/client/package.json');
const { serve, common, pause, until, message, host, port, tlsOptions } = require('./protocol');

const add = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "local sum = redis.call('INCRBY', KEYS[1], ARGV[1]) return {sum, ARGV[1]}",
  parseCommand(parser, key, number) {
    parser.pushKey(key);
    parser.push(String(number));
  },
  transformReply: undefined,
});

async function connect({ socket, ...options } = {}) {
  const tls = tlsOptions();
  const place = tls ? { host, port, tls: true, ...tls, ...socket } : { host, port, ...socket };
  const client = createClient({ socket: place, scripts: { add }, ...options });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  return client.connect();
}

const subscribers = new Map();

const features = {
  ...common,

  async *strings(client, key) {
    yield client.set(key, 'first');
    yield client.get(key);
    yield client.get(`${key}:none`);
    for (let number = 0; number < 3; number++) yield client.incr(`${key}:count`);
    yield client.set(`${key}:timed`, 'second', { EX: 1000 });
    yield client.mGet([key, `${key}:timed`, `${key}:none`]);
  },

  // What is asked for in one turn goes out in one write.
  async *pipeline(client, key) {
    const replies = [];
    for (let number = 0; number < 50; number++) replies.push(client.rPush(key, String(number)));
    replies.push(client.lRange(key, 0, -1));
    yield Promise.all(replies);
  },

  // Every way to begin a connection: RESP, names, users, databases, wrong passwords.
  async *greeting(client, key) {
    const user = { username: 'tested', password: 'secret' };
    const ways = [{ RESP: 2 }, { RESP: 3 }, { name: 'tested' }, { database: 3 }, { RESP: 3, database: 3 }, user];
    for (const options of [...ways, { ...user, password: 'wrong', socket: { reconnectStrategy: false } }]) {
      const own = await connect(options).catch((error) => error.message);
      if (typeof own === 'string') {
        yield own;
        continue;
      }
      await own.set(key, options.username || 'nobody');
      yield [await own.get(key), await client.get(key), await own.clientGetName(), await own.aclWhoAmI()];
      await own.close();
    }
  },

  // One pool, and automatic pipelining within it.
  async *concurrent(_client, key) {
    const tls = tlsOptions();
    const pool = createClientPool({ socket: tls ? { host, port, tls: true, ...tls } : { host, port } }, { maximum: 10 });
    pool.on('error', (error) => process.stderr.write(`${error.stack}\n`));
    await pool.connect();
    const work = async (number) => {
      await pool.set(`${key}:${number}`, String(number));
      return [await pool.get(`${key}:${number}`), (await pool.incr(key)) > 0];
    };
    yield Promise.all(Array.from({ length: 100 }, (_, number) => work(number)));
    await pool.close();
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

  // It learns where the slots are, and goes to the node of each key.
  async *cluster_mode(_client, key) {
    const names = Array.from({ length: 20 }, (_, number) => `${key}:${number}`);
    const cluster = createCluster({ rootNodes: [{ url: `redis://${host}:${port}` }], scripts: { add } });
    cluster.on('error', (error) => process.stderr.write(`${error.stack}\n`));
    await cluster.connect();
    yield Promise.all(names.map((name) => cluster.set(name, name)));
    yield Promise.all(names.map((name) => cluster.get(name)));
    yield cluster.multi().set(`{${key}}a`, 1).incr(`{${key}}a`).get(`{${key}}a`).exec();
    yield cluster.mGet([`{${key}}a`, `{${key}}none`]);
    yield cluster.add(`{${key}}b`, 7);
    yield cluster.blPop(`{${key}}c`, 1);
    const came = message();
    await cluster.sSubscribe(key, came.arrive);
    yield cluster.sPublish(key, 'hello');
    yield came.came;
    await cluster.sUnsubscribe(key);
    yield Promise.all(names.map((name) => cluster.del(name)));
    await cluster.close();
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
