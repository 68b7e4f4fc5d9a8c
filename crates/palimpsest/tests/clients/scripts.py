"""Lua scripts as redis-py and recipes use them, against three nodes, in one protocol version.

Usage: scripts.py 2|3 PORT PORT PORT. Prints "done"; any surprise is an exception.
"""

import sys
import threading
import time

import redis
from redis.exceptions import LockNotOwnedError, NoScriptError, ResponseError

PROTOCOL = int(sys.argv[1])
PORTS = [int(port) for port in sys.argv[2:]]


def connect(port, **options):
    return redis.Redis(port=port, protocol=PROTOCOL, decode_responses=True, **options)


def check(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


def fails(error, call, *arguments):
    try:
        call(*arguments)
    except error as raised:
        return str(raised)
    raise AssertionError(f"{call} did not fail")


def locks(nodes):
    """redis-py's lock: release, extend and reacquire are scripts."""
    lock = nodes[0].lock("lock", timeout=30)
    assert lock.acquire(blocking=False)
    other = nodes[1].lock("lock", timeout=30)
    assert not other.acquire(blocking=False)
    assert lock.extend(60)
    assert 80 < nodes[2].ttl("lock") <= 90
    assert lock.reacquire()
    assert 20 < nodes[2].ttl("lock") <= 30
    nodes[1].set("lock", "taken by another")
    fails(LockNotOwnedError, lock.release)
    nodes[1].delete("lock")
    assert other.acquire(blocking=False)
    other.release()
    check(nodes[0].exists("lock"), 0)
    counter = {"in": 0, "sum": 0}

    def work(node):
        for _ in range(10):
            with node.lock("mutex", timeout=30, sleep=0.005):
                counter["in"] += 1
                assert counter["in"] == 1, "two threads hold one lock"
                counter["sum"] += 1
                counter["in"] -= 1

    threads = [threading.Thread(target=work, args=(connect(port),)) for port in PORTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(counter["sum"], 30)


def registered(nodes):
    """A registered script travels by its digest."""
    script = nodes[0].register_script("return {KEYS[1], ARGV[1], redis.call('incr', KEYS[1])}")
    check(script(keys=["counter"], args=["x"]), ["counter", "x", 1])
    check(script(keys=["counter"], args=["y"], client=nodes[1]), ["counter", "y", 2])
    with nodes[2].pipeline() as pipe:
        pipe.set("before", "1")
        script(keys=["counter"], args=["z"], client=pipe)
        check(pipe.execute(), [True, ["counter", "z", 3]])
    digest = nodes[0].script_load("return 'loaded'")
    for node in nodes:
        check(node.evalsha(digest, 0), "loaded")
        check(node.script_exists(digest, "0" * 40), [True, False])
    nodes[1].script_flush()
    fails(NoScriptError, nodes[1].evalsha, digest, 0)
    limit = time.monotonic() + 30
    for node in nodes:
        while True:
            try:
                node.evalsha(digest, 0)
            except NoScriptError:
                break
            assert time.monotonic() < limit, "a flushed script stays"
            time.sleep(0.05)


def limiter(nodes):
    """A window that slides, over a sorted set."""
    source = """
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
    local count = redis.call('ZCARD', KEYS[1])
    if count < tonumber(ARGV[3]) then
      redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1] .. ':' .. count)
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      return {1, tonumber(ARGV[3]) - count - 1}
    end
    return {0, 0}
    """
    taken = [nodes[n % 3].eval(source, 1, "window", 1000 + n, 60000, 5) for n in range(8)]
    check(taken, [[1, 4], [1, 3], [1, 2], [1, 1], [1, 0], [0, 0], [0, 0], [0, 0]])


def jobs(nodes):
    """Jobs move between keys that a script names itself."""
    push = "local id = redis.call('incr', 'jobs:id') redis.call('hset', 'job:' .. id, 'data', ARGV[1]) redis.call('lpush', KEYS[1], id) return id"
    check([nodes[n % 3].eval(push, 1, "jobs:wait", f"job {n}") for n in range(4)], [1, 2, 3, 4])
    move = "local id = redis.call('rpop', KEYS[1]) if not id then return false end redis.call('lpush', KEYS[2], id) return {id, redis.call('hget', 'job:' .. id, 'data')}"
    for n in range(4):
        check(nodes[n % 3].eval(move, 2, "jobs:wait", "jobs:active"), [str(n + 1), f"job {n}"])
    check(nodes[0].eval(move, 2, "jobs:wait", "jobs:active"), None)
    check(nodes[1].lrange("jobs:active", 0, -1), ["4", "3", "2", "1"])


def errors(nodes):
    said = fails(ResponseError, nodes[0].eval, "return redis.call('nosuch')", 0)
    assert said.startswith("Unknown Redis command called from script script: "), said
    said = fails(ResponseError, nodes[1].eval, "x = 1", 0)
    assert "Attempt to modify a readonly table" in said, said
    said = fails(ResponseError, nodes[2].eval_ro, "return redis.call('set', KEYS[1], 1)", 1, "k")
    assert said.startswith("Write commands are not allowed from read-only scripts."), said


def main():
    nodes = [connect(port) for port in PORTS]
    for story in (locks, registered, limiter, jobs, errors):
        story(nodes)
        for node in nodes[:1]:
            node.flushall()
    print("done")


main()
