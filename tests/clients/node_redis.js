// Exercises node-redis 4: HOST PORT. Prints "fine" at its end.
const assert = require('assert');
const { createClient, commandOptions } = require('redis');

const [host, port] = process.argv.slice(2);

async function connect(options = {}) {
  const client = createClient({ socket: { host, port: Number(port), connectTimeout: 10000 }, ...options });
  client.on('error', (error) => {
    console.error(error);
    process.exit(1);
  });
  await client.connect();
  return client;
}

async function main() {
  const redis = await connect({ name: 'node-client' });
  await redis.flushAll();
  assert.strictEqual(await redis.clientGetName(), 'node-client');
  const value = Buffer.alloc(1 << 20, 7);
  await redis.set('k', value);
  assert.ok(value.equals(await redis.get(commandOptions({ returnBuffers: true }), 'k')));
  assert.strictEqual(await redis.get('none'), null);

  const numbers = Array.from({ length: 2000 }, (_, index) => index);
  await Promise.all(numbers.map((number) => redis.set(`k${number}`, number)));
  const values = await Promise.all(numbers.map((number) => redis.get(`k${number}`)));
  assert.deepStrictEqual(values, numbers.map(String));

  assert.deepStrictEqual(await redis.multi().set('m', 1).incr('m').get('m').exec(), ['OK', 2, '2']);
  const other = await connect({ database: 2 });
  await other.set('k', 'in 2');
  await redis.executeIsolated(async (isolated) => {
    await isolated.watch('watched');
    await redis.set('watched', 'theirs');
    await assert.rejects(isolated.multi().set('watched', 'mine').exec(), /watched keys has been changed/);
  });

  const popped = redis.blPop(commandOptions({ isolated: true }), 'list', 5);
  await redis.rPush('list', 'v');
  assert.deepStrictEqual({ ...(await popped) }, { key: 'list', element: 'v' });

  const subscriber = await connect();
  const messages = [];
  const done = new Promise((resolve) => {
    const listener = (message, channel) => {
      messages.push(`${channel}=${message}`);
      if (message === 'last') resolve();
    };
    subscriber.subscribe(['a', 'b'], listener).then(async () => {
      await redis.publish('a', 'first');
      await redis.publish('b', 'last');
    });
  });
  await done;
  assert.deepStrictEqual(messages, ['a=first', 'b=last']);
  await subscriber.unsubscribe();
  assert.strictEqual(await subscriber.ping(), 'PONG');

  assert.deepStrictEqual(await redis.eval('return {KEYS[1], ARGV[1]}', { keys: ['x'], arguments: ['y'] }), ['x', 'y']);
  await assert.rejects(redis.sendCommand(['NONSENSE']), /unknown command/);
  let count = 0;
  for await (const key of redis.scanIterator({ MATCH: 'k19*', COUNT: 100 })) count += key ? 1 : 0;
  assert.strictEqual(count, 111);
  await Promise.all([redis.quit(), other.quit(), subscriber.disconnect()]);
  console.log('fine');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
