// What a program of tests/newest is asked, and how it answers: scripts/clients_program.py.
const fs = require('fs');
const readline = require('readline');

const [host, port, count] = process.argv.slice(2);

// Of a secure socket; null for plain connections.
function tlsOptions() {
  if (!process.env.TESTED_BY_TLS) return null;
  const { TESTED_CERTIFICATE: cert, TESTED_KEY: key } = process.env;
  return cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};
}

const say = (line) => process.stdout.write(`${line}\n`);

// In an order of their own, as objects have the order in which a reply came.
function sorted(_key, value) {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)));
}

async function outcome(feature, client, key) {
  if (!feature) return ['unsupported'];
  const lines = [];
  try {
    for await (const reply of feature(client, key)) lines.push(`reply ${JSON.stringify(reply ?? null, sorted)}`);
  } catch (error) {
    lines.push(`error ${String(error && error.message).replace(/\n/g, ' ')}`);
  }
  return lines;
}

// connect: gives a connected client. features: generators of replies, each given a client and a key of its own.
async function serve(version, connect, features, close) {
  const clients = [];
  for (let number = 0; number < Number(count); number++) clients.push(await connect());
  say(`version ${version}`);
  say('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [, name, atOnce] = line.split(' ');
    const run = (client, number) => outcome(features[name], client, `newest:${name}:${number}`);
    const started = atOnce === 'together' ? clients.map(run) : [];
    for (const [number, client] of clients.entries()) {
      for (const text of await (started[number] || run(client, number))) say(text);
    }
    say('done');
  }
  for (const client of clients) await close(client);
  process.exit(0);
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Asks again until the answer is the one that is wanted, within reason.
async function until(ask, wanted) {
  for (const end = Date.now() + 20000; Date.now() < end; await pause(10)) {
    if ((await ask()) === wanted) return wanted;
  }
  return ask();
}

// A promise that is kept from outside, and not for ever.
function message() {
  let arrive;
  const came = new Promise((resolve) => {
    arrive = resolve;
  });
  return { arrive, came: Promise.race([came, pause(20000).then(() => 'nothing came')]) };
}

// Features in which the libraries of this language are spelt alike.
const common = {
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

  async *killed(client, key) {
    await client.set(key, 'before');
    let lost = 0;
    for (const end = Date.now() + 20000; Date.now() < end; await pause(10)) {
      try {
        if ((await client.get(key)) === null) break;
      } catch {
        lost++;
      }
    }
    yield `lost=${lost}`;
    yield [await client.set(`${key}:after`, 'there'), await client.get(`${key}:after`), await client.get(key)];
  },
};

module.exports = { serve, common, pause, until, message, host, port: Number(port), tlsOptions };
