"""Lock libraries for Python. Usage: main.py LIBRARY SENTINEL-HOST:PORT..."""

import sys
import time

import redis
from redis.sentinel import Sentinel

SECONDS_MAX = 30


class RedlockPy:
    """redlock-py has no extension, and its release never tells whether it released."""

    def __init__(self, client):
        import redlock

        self.manager = redlock.Redlock([client], retry_count=1)

    def acquire(self, name, seconds):
        return self.manager.lock(name, 1000 * seconds) or None

    extend = None

    def release(self, lock):
        self.manager.unlock(lock)


class RedisPy:
    def __init__(self, client):
        self.client = client

    def acquire(self, name, seconds):
        lock = self.client.lock(name, timeout=seconds, blocking=False)
        return lock if lock.acquire() else None

    def extend(self, lock):
        lock.reacquire()

    def release(self, lock):
        lock.release()


class PythonRedisLock:
    def __init__(self, client):
        self.client = client

    def acquire(self, name, seconds):
        import redis_lock

        lock = redis_lock.Lock(self.client, name, expire=seconds)
        return lock if lock.acquire(blocking=False) else None

    def extend(self, lock):
        lock.extend()

    def release(self, lock):
        lock.release()


class Pottery:
    def __init__(self, client):
        self.client = client

    def acquire(self, name, seconds):
        import pottery

        lock = pottery.Redlock(key=name, masters={self.client}, auto_release_time=seconds)
        return lock if lock.acquire(blocking=False) else None

    def extend(self, lock):
        lock.extend()

    def release(self, lock):
        lock.release()


LIBRARIES = {
    "redlock-py": RedlockPy,
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
}


def wait_for(condition, why):
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            found = condition()
            if found:
                return found
        except redis.RedisError:
            pass
        if time.monotonic() > end:
            raise AssertionError(why)
        time.sleep(0.02)


def check(held, why):
    if not held:
        raise AssertionError(why)


def connect(addresses):
    pairs = [(host, int(port)) for host, port in (it.rsplit(":", 1) for it in addresses)]
    return Sentinel(pairs, socket_timeout=5).master_for("mymaster", socket_timeout=5)


def milliseconds_left(client, name):
    return max((client.pttl(key) for key in client.keys(f"*{name}")), default=-2)


def exclusion(first, second, _client):
    lock = first.acquire("exclusion", 60)
    check(lock, "a free lock was refused")
    check(second.acquire("exclusion", 60) is None, "two hold one lock")
    first.release(lock)
    check(second.acquire("exclusion", 60), "it was not released")


def extension(first, _second, client):
    if first.extend is None:
        return
    lock = first.acquire("extension", 3)
    wait_for(lambda: milliseconds_left(client, "extension") < 2500, "its time stands still")
    first.extend(lock)
    wait_for(lambda: milliseconds_left(client, "extension") > 2500, "it was not extended")


def expiry(first, second, _client):
    begun = time.monotonic()
    lock = first.acquire("expiry", 1)
    wait_for(lambda: second.acquire("expiry", 60), "it did not expire")
    check(time.monotonic() - begun >= 1, "it expired early")
    try:
        first.release(lock)
        silent = True
    except Exception:
        silent = False
    check(not silent or isinstance(first, RedlockPy), "the release of a lost lock passed")
    check(first.acquire("expiry", 60) is None, "a stranger released it")


def failover(first, second, client):
    lock = first.acquire("failover", 60)
    print("held", flush=True)
    sys.stdin.readline()
    wait_for(client.ping, "no other node answered")
    # Its client may have been at the same node.
    wait_for(lambda: second.acquire("other", 1) or True, "no other node answered")
    check(second.acquire("failover", 60) is None, "it was lost with a node")
    if first.extend is not None:
        first.extend(lock)
    first.release(lock)
    check(second.acquire("failover", 60), "it was not released")


def main():
    library, addresses = LIBRARIES[sys.argv[1]], sys.argv[2:]
    client = connect(addresses)
    first, second = library(client), library(connect(addresses[1:] + addresses[:1]))
    for subject in [exclusion, extension, expiry, failover]:
        try:
            subject(first, second, client)
        except Exception as error:
            print(f"FAILED {subject.__name__}: {error!r}", flush=True)
            return
    print("done", flush=True)


main()
