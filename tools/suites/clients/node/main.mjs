// First use of Palimpsest with node-redis.
//
// Usage: node main.mjs HOST:PORT HOST:PORT HOST:PORT

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { createClient, ErrorReply } from "redis";

const ATTEMPTS = 200;

// A client for each address. Each reconnects by itself; any node serves any key.
class AnyNode {
  constructor(addresses) {
    this.clients = addresses.map((address) => {
      const [host, port] = address.split(":");
      const client = createClient({
        socket: { host, port: Number(port), reconnectStrategy: 100 },
        disableOfflineQueue: true,
      });
      client.on("error", () => {});
      client.connect().catch(() => {});
      return client;
    });
  }

  // Runs `action` with the first client that is connected, and again after a lost connection.
  // A retried command may run twice, as with any server. ONCE makes a retry safe.
  async run(action) {
    let error = new Error("no node is connected");
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      for (const client of this.clients.filter((it) => it.isReady)) {
        try {
          return await action(client);
        } catch (failure) {
          if (failure instanceof ErrorReply) throw failure;
          error = failure;
        }
      }
      await sleep(50);
    }
    throw error;
  }

  close() {
    for (const client of this.clients) client.destroy();
  }
}

// Commands that run at most once, however often they are sent.
class Once {
  constructor(db) {
    this.db = db;
    this.session = randomUUID();
    this.sequence = 0;
  }

  run(...command) {
    this.sequence += 1;
    const line = ["ONCE", this.session, String(this.sequence), ...command];
    return this.db.run((client) => client.sendCommand(line));
  }
}

async function strings(db) {
  assert.equal(await db.run((client) => client.set("greeting", "hello")), "OK");
  assert.equal(await db.run((client) => client.get("greeting")), "hello");
  assert.equal(await db.run((client) => client.get("absent")), null);
}

async function counters(db) {
  await db.run((client) => client.del("visits"));
  assert.equal(await db.run((client) => client.incr("visits")), 1);
  assert.equal(await db.run((client) => client.incrBy("visits", 10)), 11);
}

async function expiry(db) {
  await db.run((client) => client.set("session", "alice", { EX: 60 }));
  const left = await db.run((client) => client.ttl("session"));
  assert.ok(left > 0 && left <= 60, `${left} seconds`);
  assert.equal(await db.run((client) => client.expire("session", 120)), 1);
  assert.equal(await db.run((client) => client.persist("session")), 1);
  assert.equal(await db.run((client) => client.ttl("session")), -1);
}

// Commands sent together share one round trip.
async function pipeline(db) {
  const replies = await db.run((client) => {
    const sets = Array.from({ length: 100 }, (_, number) => client.set(`item:${number}`, `${number}`));
    return Promise.all([...sets, client.get("item:99")]);
  });
  assert.deepEqual(replies, [...Array(100).fill("OK"), "99"]);
}

async function lock(db) {
  const take = (owner) =>
    db.run((client) =>
      client.set("lock", owner, { condition: "NX", expiration: { type: "PX", value: 30_000 } }),
    );
  // Deletes the lock only if `owner` still has it.
  const release = (owner) => db.run((client) => client.sendCommand(["DELEX", "lock", "IFEQ", owner]));
  await db.run((client) => client.del("lock"));
  assert.equal(await take("me"), "OK");
  assert.equal(await take("you"), null);
  assert.equal(await release("you"), 0);
  assert.equal(await release("me"), 1);
}

async function once(db) {
  await db.run((client) => client.del("orders"));
  const line = ["ONCE", randomUUID(), "1", "INCR", "orders"];
  for (let repeat = 0; repeat < 3; repeat += 1) {
    assert.equal(await db.run((client) => client.sendCommand(line)), 1);
  }
  assert.equal(await db.run((client) => client.get("orders")), "1");
}

async function failover(db) {
  await db.run((client) => client.del("counted"));
  const counter = new Once(db);
  let expected = 0;
  console.log("ready to count");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === "end") break;
    for (let step = 0; step < 300; step += 1) {
      expected += 1;
      assert.equal(await counter.run("INCR", "counted"), expected);
      if (expected % 50 === 0) console.log("50");
    }
    console.log("counted");
  }
  assert.equal(await db.run((client) => client.get("counted")), String(expected));
}

const db = new AnyNode(process.argv.slice(2));
for (const subject of [strings, counters, expiry, pipeline, lock, once, failover]) {
  try {
    await subject(db);
    console.log(`ok ${subject.name}`);
  } catch (error) {
    console.log(`FAILED ${subject.name}: ${String(error.message).replaceAll("\n", " ")}`);
  }
}
db.close();
process.exit(0);
