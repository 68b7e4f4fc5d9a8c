// ioredis in cluster and sentinel mode.
//
// Usage: node main.mjs LIBRARY MODE HOST:PORT...

import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { Cluster, Redis } from "ioredis";

const MS_MAX = 60_000;

function connect(mode, addresses) {
  const nodes = addresses.map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
  });
  const client =
    mode === "cluster"
      ? new Cluster(nodes, { clusterRetryStrategy: () => 100 })
      : new Redis({ sentinels: nodes, name: "mymaster", sentinelRetryStrategy: () => 100 });
  client.on("error", () => {});
  return client;
}

// Repeats what fails, as an application does. A repeated SET changes nothing.
async function persist(action) {
  const end = Date.now() + MS_MAX;
  for (;;) {
    try {
      return await action();
    } catch (error) {
      if (Date.now() > end) throw error;
      await sleep(50);
    }
  }
}

const [, mode, ...addresses] = process.argv.slice(2);
const client = connect(mode, addresses);
let written = 0;
await persist(() => client.ping());
console.log("ready");
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [word, argument] = line.split(" ");
  if (word === "check") {
    const wrong = [];
    for (let number = 0; number < written; number += 1) {
      if ((await persist(() => client.get(`w:${number}`))) !== String(number)) wrong.push(number);
    }
    console.log(wrong.length > 0 ? `FAILED ${wrong.slice(0, 5)}` : "ok");
    continue;
  }
  const count = Number(argument);
  for (let number = 0; number < count; number += 1) {
    await persist(() => client.set(`w:${written}`, written));
    written += 1;
    if (number === Math.floor(count / 2)) console.log("half");
  }
  console.log("written");
}
