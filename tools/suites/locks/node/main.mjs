// Lock libraries for Node.js. Usage: node main.mjs LIBRARY SENTINEL-HOST:PORT...

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { Redis } from "ioredis";
import { LostLockError, Mutex } from "redis-semaphore";
import Redlock from "redlock";

const MS_MAX = 30_000;

class NodeRedlock {
  constructor(client) {
    this.manager = new Redlock([client], { retryCount: 0 });
  }

  async acquire(name, ms) {
    try {
      return await this.manager.lock(name, ms);
    } catch (error) {
      if (error.name === "LockError") return null;
      throw error;
    }
  }

  extend(lock) {
    return lock.extend(3000);
  }

  release(lock) {
    return lock.unlock();
  }
}

// It extends a lock by itself. A release of a lost lock is told by `onLockLost` only.
class RedisSemaphore {
  constructor(client) {
    this.client = client;
  }

  async acquire(name, ms) {
    const lock = new Mutex(this.client, name, {
      lockTimeout: ms,
      acquireAttemptsLimit: 1,
      refreshInterval: ms > 1000 ? 800 : 0,
      onLockLost: (error) => {
        if (!(error instanceof LostLockError)) throw error;
      },
    });
    return (await lock.tryAcquire()) ? lock : null;
  }

  async extend() {}

  async release(lock) {
    await lock.release();
  }
}

const LIBRARIES = { redlock: NodeRedlock, "redis-semaphore": RedisSemaphore };

async function waitFor(condition, why) {
  const end = Date.now() + MS_MAX;
  for (;;) {
    const found = await Promise.resolve()
      .then(condition)
      .catch(() => null);
    if (found) return found;
    check(Date.now() < end, why);
    await sleep(20);
  }
}

function check(held, why) {
  if (!held) throw new Error(why);
}

function connect(addresses) {
  const sentinels = addresses.map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
  });
  const client = new Redis({ sentinels, name: "mymaster", sentinelRetryStrategy: () => 100 });
  client.on("error", () => {});
  return client;
}

async function msLeft(client, name) {
  const keys = await client.keys(`*${name}`);
  const left = await Promise.all(keys.map((key) => client.pttl(key)));
  return Math.max(-2, ...left);
}

async function exclusion(first, second) {
  const lock = await first.acquire("exclusion", 60_000);
  check(lock, "a free lock was refused");
  check((await second.acquire("exclusion", 60_000)) === null, "two hold one lock");
  await first.release(lock);
  check(await second.acquire("exclusion", 60_000), "it was not released");
}

async function extension(first, second, client) {
  const lock = await first.acquire("extension", 3000);
  await waitFor(async () => (await msLeft(client, "extension")) < 2500, "its time stands still");
  await first.extend(lock);
  await waitFor(async () => (await msLeft(client, "extension")) > 2500, "it was not extended");
}

async function expiry(first, second) {
  const begun = Date.now();
  const lock = await first.acquire("expiry", 1000);
  await waitFor(() => second.acquire("expiry", 60_000), "it did not expire");
  check(Date.now() - begun >= 1000, "it expired early");
  const silent = await first.release(lock).then(
    () => true,
    () => false,
  );
  check(!silent || first instanceof RedisSemaphore, "the release of a lost lock passed");
  check((await first.acquire("expiry", 60_000)) === null, "a stranger released it");
}

async function failover(first, second, client) {
  const lock = await first.acquire("failover", 60_000);
  console.log("held");
  await once(process.stdin, "data");
  await waitFor(() => client.ping(), "no other node answered");
  // Its client may have been at the same node.
  await waitFor(async () => (await second.acquire("other", 1000)) || true, "no other node answered");
  check((await second.acquire("failover", 60_000)) === null, "it was lost with a node");
  const held = (await first.extend(lock)) ?? lock;
  await first.release(held);
  check(await second.acquire("failover", 60_000), "it was not released");
}

const [library, ...addresses] = process.argv.slice(2);
const client = connect(addresses);
const first = new LIBRARIES[library](client);
const second = new LIBRARIES[library](connect([...addresses.slice(1), addresses[0]]));
try {
  for (const subject of [exclusion, extension, expiry, failover]) {
    await subject(first, second, client).catch((error) => {
      throw new Error(`${subject.name}: ${error}`);
    });
  }
  console.log("done");
} catch (error) {
  console.log(`FAILED ${error.message}`);
}
process.exit();
