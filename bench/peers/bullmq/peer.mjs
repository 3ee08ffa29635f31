// BullMQ's side of the comparison; the verbs are those of ../kit.py, and `worker` runs the jobs.
import fs from "node:fs";
import { Queue, Worker } from "bullmq";

const url = new URL(process.env.BENCH_URL ?? "redis://127.0.0.1:6379/0");
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const BODY = "x".repeat(1000);
const [WARM, HELD, BULK, EVERY_MS, HOLD_MS] = [99999998, 99999999, 500, 50, 60000];
const IN_FLIGHT = Number(process.env.BENCH_IN_FLIGHT ?? 50);
const options = { removeOnComplete: true, removeOnFail: true };
const sleep = (ms) => new Promise((done) => setTimeout(done, Math.max(0, ms)));
const nowUs = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
const append = (name) => fs.openSync(process.env[name] ?? "/dev/null", "a");
const line = (n, us) => `${String(n).padStart(8, "0")} ${String(us).padStart(16, "0")}\n`;

async function work() {
  const receipts = append("BENCH_RECEIPTS");
  const handle = async (job) => {
    fs.writeSync(receipts, line(job.data.n, nowUs()));
    if (job.name === "hold") await sleep(HOLD_MS);
  };
  const worker = new Worker("bench", handle, { connection, concurrency: 50 });
  worker.on("error", (error) => console.error(String(error)));
  await worker.waitUntilReady();
}

async function produce(verb, count) {
  const queue = new Queue("bench", { connection });
  const sent = append("BENCH_SENT");
  const put = (n, more = {}) => queue.add("noop", { n, body: BODY }, { ...options, ...more });
  if (verb === "hold") {
    await queue.add("hold", { n: HELD }, options);
    return queue.close();
  }
  await put(WARM);
  const began = performance.now();
  const cpu = process.cpuUsage();
  if (verb === "single") {
    let next = 0;
    const caller = async () => {
      while (next < count) await put(next++);
    };
    await Promise.all(Array.from({ length: IN_FLIGHT }, caller));
  } else if (verb === "bulk") {
    for (let first = 0; first < count; first += BULK) {
      const size = Math.min(BULK, count - first);
      const job = (_, i) => ({ name: "noop", data: { n: first + i, body: BODY }, opts: options });
      await queue.addBulk(Array.from({ length: size }, job));
    }
  } else if (verb === "pickup") {
    for (let n = 0; n < count; n++) {
      await sleep(began + 1000 + n * EVERY_MS - performance.now());
      fs.writeSync(sent, line(n, nowUs()));
      await put(n);
    }
  } else if (verb === "delayed") {
    for (let n = 0; n < count; n++) {
      const due = nowUs() + 2e6 + ((n * 7919) % 1000) * 2000;
      fs.writeSync(sent, line(n, due));
      await put(n, { delay: Math.round((due - nowUs()) / 1000) });
    }
  } else throw new Error(`no verb ${verb}`);
  const { user, system } = process.cpuUsage(cpu);
  console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000, cpu: (user + system) / 1e6 }));
  await queue.close();
}

const [verb, count] = process.argv.slice(2);
await (verb === "worker" ? work() : produce(verb, Number(count ?? 0)));
