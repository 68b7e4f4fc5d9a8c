"""First use of Palimpsest with redis-py.

Usage: main.py HOST:PORT HOST:PORT HOST:PORT
"""

import sys
import uuid

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry


class AnyNode(redis.Connection):
    """Connects to the first address that answers. Any node serves any key."""

    def __init__(self, addresses, **options):
        self.addresses = addresses
        super().__init__(**options)

    def _connect(self):
        error = None
        for self.host, self.port in self.addresses:
            try:
                return super()._connect()
            except OSError as failure:
                error = failure
        raise error


def connect(addresses):
    pool = redis.ConnectionPool(
        connection_class=AnyNode,
        addresses=[(host, int(port)) for host, port in (it.rsplit(":", 1) for it in addresses)],
        socket_timeout=5,
        decode_responses=True,
        # A retried command may run twice, as with any server. `once` makes a retry safe.
        retry=Retry(ConstantBackoff(0.05), 20),
    )
    return redis.Redis(connection_pool=pool)


class Once:
    """Commands that run at most once, however often the library sends them."""

    def __init__(self, client):
        self.client, self.session, self.sequence = client, uuid.uuid4().hex, 0

    def run(self, *command):
        self.sequence += 1
        return self.client.execute_command("ONCE", self.session, self.sequence, *command)


def check(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} instead of {expected!r}")


def strings(client):
    check(client.set("greeting", "hello"), True)
    check(client.get("greeting"), "hello")
    check(client.get("absent"), None)


def counters(client):
    client.delete("visits")
    check([client.incr("visits"), client.incr("visits", 10)], [1, 11])


def expiry(client):
    client.set("session", "alice", ex=60)
    check(0 < client.ttl("session") <= 60, True)
    check(client.expire("session", 120), True)
    check(60 < client.ttl("session") <= 120, True)
    check(client.persist("session"), True)
    check(client.ttl("session"), -1)


def pipeline(client):
    with client.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"item:{number}", number)
        pipe.get("item:99")
        check(pipe.execute(), [True] * 100 + ["99"])


def lock(client):
    client.delete("lock")
    check(client.set("lock", "me", nx=True, px=30_000), True)
    check(client.set("lock", "you", nx=True, px=30_000), None)
    # Deletes the lock only if it is still mine.
    check(client.execute_command("DELEX", "lock", "IFEQ", "you"), 0)
    check(client.execute_command("DELEX", "lock", "IFEQ", "me"), 1)


def once(client):
    client.delete("orders")
    session = uuid.uuid4().hex
    replies = [client.execute_command("ONCE", session, 1, "INCR", "orders") for _ in range(3)]
    check(replies, [1, 1, 1])
    check(client.get("orders"), "1")


def failover(client):
    client.delete("counted")
    counter, expected = Once(client), 0
    print("ready to count", flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        for _ in range(300):
            expected += 1
            check(counter.run("INCR", "counted"), expected)
            if expected % 50 == 0:
                print("50", flush=True)
        print("counted", flush=True)
    check(client.get("counted"), str(expected))


def main():
    client = connect(sys.argv[1:])
    for subject in [strings, counters, expiry, pipeline, lock, once, failover]:
        try:
            subject(client)
            print("ok", subject.__name__, flush=True)
        except (AssertionError, redis.RedisError) as error:
            print(f"FAILED {subject.__name__}: {error}", flush=True)


main()
