"""redis-py in cluster and sentinel mode. Usage: main.py LIBRARY MODE HOST:PORT..."""

import sys
import time

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

SECONDS_MAX = 60


def connect(mode, addresses):
    pairs = [(host, int(port)) for host, port in (it.rsplit(":", 1) for it in addresses)]
    if mode == "cluster":
        nodes = [ClusterNode(host, port) for host, port in pairs]
        return RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=5)
    sentinel = Sentinel(pairs, socket_timeout=5)
    return sentinel.master_for("mymaster", decode_responses=True, socket_timeout=5)


def persist(action):
    """Repeats what fails, as an application does. A repeated SET changes nothing."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return action()
        except redis.RedisError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main():
    mode, addresses = sys.argv[2], sys.argv[3:]
    client = persist(lambda: connect(mode, addresses))
    written = 0
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "check":
            wrong = [n for n in range(written) if persist(lambda: client.get(f"w:{n}")) != str(n)]
            print(f"FAILED {wrong[:5]}" if wrong else "ok", flush=True)
            continue
        count = int(words[1])
        for number in range(count):
            persist(lambda: client.set(f"w:{written}", written))
            written += 1
            if number == count // 2:
                print("half", flush=True)
        print("written", flush=True)


main()
