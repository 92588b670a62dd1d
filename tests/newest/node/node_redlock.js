// node-redlock over ioredis.
const Redis = require('ioredis');
const Redlock = require('redlock');
const { version } = require('redlock/package.json');
const { serve, pause, host, port, tlsOptions } = require('./protocol');

async function connect() {
  const tls = tlsOptions();
  const client = new Redis({ host, port, ...(tls ? { tls } : {}) });
  client.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  await new Promise((resolve) => client.once('ready', resolve));
  return client;
}

const features = {
  async *locks(client, key) {
    const once = new Redlock([client], { retryCount: 0 });
    const lock = await once.lock(key, 10000);
    yield client.exists(key);
    yield once.lock(key, 10000).catch((error) => error.name);
    yield (await lock.extend(20000)).attempts;
    await lock.unlock();
    yield client.exists(key);

    const patient = new Redlock([client], { retryCount: 200, retryDelay: 20 });
    const first = await patient.lock([key, `${key}:second`], 10000);
    const order = [];
    const second = patient.lock(key, 10000).then((held) => {
      order.push('second has it');
      return held.unlock();
    });
    await pause(50);
    order.push('first gives it back');
    await first.unlock();
    await second;
    yield order;
    yield client.exists(key, `${key}:second`);
  },
};

serve(version, connect, features, (client) => client.quit());
