// BullMQ as a whole: queues, workers, delays, priorities, retries, flows, repeated jobs, events.
const { Queue, Worker, QueueEvents, FlowProducer } = require('bullmq');
const { version } = require('bullmq/package.json');
const { serve, pause, host, port, tlsOptions } = require('./protocol');

const tls = tlsOptions();
const connection = { host, port, ...(tls ? { tls } : {}) };
let count = 0;

async function connect() {
  const queue = new Queue(`tested-${count++}`, { connection });
  queue.on('error', (error) => process.stderr.write(`${error.stack}\n`));
  await queue.waitUntilReady();
  return queue;
}

async function work(job) {
  if (job.name === 'fails once' && job.attemptsMade === 0) throw new Error('not yet');
  if (job.name === 'fails') throw new Error('never');
  if (job.name === 'slow') await pause(200);
  await job.updateProgress(50);
  return job.data.number * 2;
}

const features = {
  async *jobs(queue) {
    const events = new QueueEvents(queue.name, { connection });
    await events.waitUntilReady();
    const started = [];
    const worker = new Worker(queue.name, work, { connection, concurrency: 5 });
    worker.on('active', (job) => started.push(job.name));
    await worker.waitUntilReady();
    const backoff = { type: 'fixed', delay: 50 };
    const jobs = [
      await queue.add('plain', { number: 1 }),
      await queue.add('delayed', { number: 2 }, { delay: 300 }),
      await queue.add('first', { number: 3 }, { priority: 1 }),
      await queue.add('fails once', { number: 4 }, { attempts: 3, backoff }),
      await queue.add('fails', { number: 5 }, { attempts: 2, backoff }),
      await queue.add('slow', { number: 6 }, { lifo: true }),
      ...(await queue.addBulk([7, 8, 9].map((number) => ({ name: 'bulk', data: { number } })))),
    ];
    yield Promise.all(jobs.map((job) => job.waitUntilFinished(events, 20000).catch((error) => error.message)));
    yield [...new Set(started)].sort();

    const flows = new FlowProducer({ connection });
    const children = [1, 2, 3].map((number) => ({ name: 'child', queueName: queue.name, data: { number } }));
    const { job } = await flows.add({ name: 'parent', queueName: queue.name, data: { number: 10 }, children });
    yield job.waitUntilFinished(events, 20000);
    yield Object.values(await job.getChildrenValues()).sort();
    await flows.close();

    await queue.pause();
    yield queue.isPaused();
    const waiting = await queue.add('paused', { number: 11 });
    yield waiting.getState();
    await queue.resume();
    yield waiting.waitUntilFinished(events, 20000);
    await worker.close();
    await events.close();
    yield queue.getJobCounts();
    await queue.obliterate({ force: true });
  },
};

serve(version, connect, features, (queue) => queue.close());
