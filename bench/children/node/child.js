// A child of the benchmark suite (see work/protocol.go): one JSON order per line on standard input, one
// JSON result per line on standard output.
import { createInterface } from "node:readline";
import { openSync, closeSync, readSync, writeSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";

const DRAIN = 3e9;
let open;
const lockers = [];

function dial(members) {
  const clients = members.map((m) => {
    const i = m.lastIndexOf(":");
    const c = new Redis({ host: m.slice(0, i), port: Number(m.slice(i + 1)), lazyConnect: true });
    c.on("error", () => {}); // it dials again by itself
    return c;
  });
  const lock = new Redlock(clients, { retryCount: -1, automaticExtensionThreshold: 500 });
  lock.on("error", () => {});
  return { clients, lock };
}

async function start(order) {
  open = order;
  const n = Math.max(1, order.clients ?? 1);
  for (let i = 0; i < n; i++) {
    const l = dial(order.members);
    const majority = order.members.length - Math.floor(order.members.length / 2) - 1;
    const up = await Promise.race([Promise.allSettled(l.clients.map((c) => c.connect())), sleep(5000).then(() => null)]);
    if (up && up.filter((u) => u.status === "rejected").length > majority) throw up.find((u) => u.status === "rejected").reason;
    lockers.push(l);
  }
  const { version } = JSON.parse(readFileSync(new URL("node_modules/redlock/package.json", import.meta.url)));
  return { version: `redlock ${version}, Node ${process.versions.node}` };
}

const now = () => Number(process.hrtime.bigint()); // CLOCK_MONOTONIC

// Three digits are enough.
function count(h, ns) {
  let v = Math.max(1, Math.round(ns)), unit = 1;
  while (v / unit >= 1000) unit *= 10;
  v = Math.floor(v / unit) * unit;
  h.set(v, (h.get(v) ?? 0) + 1);
}

const newCaller = () => ({
  total: new Map(), acquire: new Map(), release: new Map(), handoff: new Map(),
  ops: 0, all: 0, errors: 0, self: 0, overlaps: 0, writes: 0, waitSum: 0, waitMax: 0, samples: [],
});

function failed(c, e) {
  c.errors++;
  if (c.samples.length < 2) c.samples.push(String(e?.message ?? e));
}

// The file that contenders share; see Storage in work/storage.go. Node cannot map it, and needs no
// atomic operations: what it could miss of an overlap between two processes the counter shows.
class Storage {
  constructor(path) {
    this.fd = openSync(path, "r+");
    this.buf = Buffer.alloc(8);
  }
  get(at) {
    readSync(this.fd, this.buf, 0, 8, at);
    return Number(this.buf.readBigInt64LE());
  }
  set(at, v) {
    this.buf.writeBigInt64LE(BigInt(Math.round(v)));
    writeSync(this.fd, this.buf, 0, 8, at);
  }
  close() {
    closeSync(this.fd);
  }
}

async function loop(c, l, prefix, began, length) {
  const warm = open.warm ? Math.max(1, Math.floor(open.warm / open.callers)) : 0;
  for (let i = 0; ; i++) {
    const t0 = now() - began;
    if (t0 >= length) return;
    try {
      const lock = await l.lock.acquire([prefix + (warm ? i % warm : i)], open.lease_ms);
      const t1 = now() - began;
      await lock.release();
      const t2 = now() - began;
      c.all++;
      if (t2 <= length) c.ops++;
      count(c.total, t2 - t0);
      count(c.acquire, t1 - t0);
      count(c.release, t2 - t1);
    } catch (e) {
      failed(c, e);
      count(c.total, now() - began - t0);
    }
  }
}

async function contend(c, l, order, who, store, began, length) {
  for (;;) {
    const t0 = now() - began;
    if (t0 >= length) return;
    let lock;
    try {
      // The library cannot be told to stop waiting, so the number of its tries bounds it: 200 ms each.
      lock = await l.lock.acquire([order.prefix + "hot"], open.lease_ms, { retryCount: Math.max(0, Math.floor((length - t0) / 2e8)) });
    } catch (e) {
      const t = now() - began;
      c.waitMax = Math.max(c.waitMax, t - t0);
      if (t < length - 3e8) failed(c, e);
      continue;
    }
    const t1 = now() - began;
    const last = store.get(16), since = now() - store.get(24);
    let overlap = store.get(8) !== 0;
    store.set(8, who + 1);
    const seen = store.get(0);
    const hold = open.hold_us ? (open.random ? Math.random() * open.hold_us : open.hold_us) / 1000 : 0;
    if (hold >= 0.5) await sleep(1); // its timers know whole milliseconds
    store.set(0, seen + 1);
    overlap ||= store.get(8) !== who + 1;
    store.set(8, 0);
    store.set(24, now());
    store.set(16, who + 1);
    c.all++;
    c.writes++;
    c.waitSum += t1 - t0;
    c.waitMax = Math.max(c.waitMax, t1 - t0);
    if (overlap) c.overlaps++;
    if (last === who + 1) c.self++;
    else if (last !== 0) count(c.handoff, since);
    try {
      await lock.release();
    } catch (e) {
      failed(c, e);
    }
    const t2 = now() - began;
    if (t2 <= length) c.ops++;
    count(c.total, t2 - t0);
    count(c.acquire, t1 - t0);
    count(c.release, t2 - t1);
    if (open.pause_us) await sleep(open.pause_us / 1000);
  }
}

async function pass(order, length, part) {
  const callers = Array.from({ length: open.callers }, newCaller);
  const contended = open.work === "contended";
  const store = contended ? new Storage(order.storage) : null;
  const began = now();
  let back = 0;
  const all = callers.map((c, i) => {
    const l = lockers[i % lockers.length];
    const run = contended
      ? contend(c, l, order, (order.who ?? 0) + i, store, began, length)
      : loop(c, l, `${order.prefix}${part}${i}:`, began, length);
    return run.then(() => { back++; });
  });
  let timer;
  const limit = new Promise((done) => { timer = setTimeout(done, (length + DRAIN + 1e9) / 1e6); });
  await Promise.race([Promise.all(all), limit]);
  clearTimeout(timer);
  if (back === callers.length) store?.close();
  return { callers, stuck: callers.length - back };
}

async function slice(order) {
  const result = { elapsed: order.slice_ms * 1e6, allocs: -1, all_ops: 0, writes: 0, overlaps: 0 };
  if (order.warm_ms) {
    const { callers, stuck } = await pass(order, order.warm_ms * 1e6, "w");
    for (const c of callers) {
      result.all_ops += c.all;
      result.writes += c.writes;
      result.overlaps += c.overlaps;
    }
    if (stuck) return { ...result, stuck, samples: ["stuck in the warm-up"] };
  }
  const before = process.cpuUsage();
  const { callers, stuck } = await pass(order, order.slice_ms * 1e6, "m");
  const used = process.cpuUsage(before);
  Object.assign(result, { cpu: (used.user + used.system) * 1000, stuck, ops: 0, done: 0, errors: 0, self: 0, wait_sum: 0, wait_max: 0, samples: [] });
  const hists = { total: new Map(), acquire: new Map(), release: new Map(), handoff: new Map() };
  for (const c of callers) {
    result.ops += c.ops;
    result.done += c.all;
    result.all_ops += c.all;
    result.errors += c.errors;
    result.self += c.self;
    result.writes += c.writes;
    result.overlaps += c.overlaps;
    result.wait_sum += Math.round(c.waitSum);
    result.wait_max = Math.max(result.wait_max, Math.round(c.waitMax));
    result.samples.push(...c.samples.slice(0, Math.max(0, 3 - result.samples.length)));
    for (const [name, h] of Object.entries(hists)) for (const [k, v] of c[name]) h.set(k, (h.get(k) ?? 0) + v);
  }
  result.per_caller = callers.map((c) => c.ops);
  for (const [name, h] of Object.entries(hists)) result[name] = [...h].sort((a, b) => a[0] - b[0]);
  return result;
}

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  let result;
  try {
    if (order.op === "open") result = await start(order);
    else if (order.op === "slice") result = await slice(order);
    else if (order.op === "close") result = {};
    else throw new Error(`no order ${order.op}`);
    result.ok = true;
  } catch (e) {
    result = { ok: false, error: String(e?.message ?? e) };
  }
  process.stdout.write(JSON.stringify(result) + "\n");
  if (order.op === "close") break;
}
process.exit(0); // what is stuck does not keep the process
