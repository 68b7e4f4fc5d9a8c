"""What redis-py does out of the box, in one protocol version, against three nodes.

Usage: redis_py.py 2|3 PORT PORT PORT. Prints "done"; any surprise is an exception.
"""

import sys
import time

import redis

PROTOCOL = int(sys.argv[1])
PORTS = [int(port) for port in sys.argv[2:]]


def connect(port, **options):
    return redis.Redis(port=port, protocol=PROTOCOL, decode_responses=True, **options)


def check(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


def refuses(call, text):
    try:
        reply = call()
    except redis.ResponseError as error:
        assert text in str(error), f"{error} does not say {text!r}"
    else:
        raise AssertionError(f"{reply!r} where an error was expected")


def strings(nodes, prefix):
    one, two, three = nodes
    key = prefix + "string"
    check(one.set(key, "a"), True)
    check(two.get(key), "a")
    check(three.set(key, "b", nx=True), None)
    check(three.set(key, "b", xx=True), True)
    check(one.set(key, "c", get=True), "b")
    check(two.append(key, "de"), 3)
    check(three.strlen(key), 3)
    check(one.getrange(key, 1, -1), "de")
    check(two.setrange(key, 1, "XY"), 3)
    check(three.getdel(key), "cXY")
    check(one.get(key), None)
    check(one.setnx(key, "n"), True)
    check(two.setnx(key, "m"), False)
    check(one.mget([key, prefix + "absent"]), ["n", None])


def counters(nodes, prefix):
    one, two, three = nodes
    key = prefix + "counter"
    check([one.incr(key), two.incr(key, 10), three.decr(key, 2)], [1, 11, 9])
    check(one.incrbyfloat(prefix + "float", 0.5), 0.5)
    check(two.incrbyfloat(prefix + "float", 1), 1.5)
    two.set(prefix + "text", "x")
    refuses(lambda: one.incr(prefix + "text"), "value is not an integer or out of range")


def lifetimes(nodes, prefix):
    one, two, three = nodes
    key = prefix + "mortal"
    check(one.set(key, "v", px=60_000), True)
    assert 0 < two.pttl(key) <= 60_000
    check(three.persist(key), True)
    check(one.ttl(key), -1)
    check(two.expire(key, 100), True)
    assert 0 < three.ttl(key) <= 100
    check(one.set(key, "w", keepttl=True), True)
    assert 0 < two.ttl(key) <= 100
    check(three.ttl(prefix + "absent"), -2)
    check(one.set(key, "x", px=50), True)
    limit = time.monotonic() + 20
    while two.exists(key):
        assert time.monotonic() < limit, "a key with 50 ms to live is there after 20 s"
    check(three.get(key), None)


def keys(nodes, prefix):
    one, two, three = nodes
    names = {f"{prefix}scan:{number}" for number in range(30)}
    for name in names:
        one.set(name, "1")
    check(set(two.scan_iter(match=prefix + "scan:*", count=7)), names)
    check(set(three.keys(prefix + "scan:*")), names)
    check(two.exists(*names), 30)
    check(three.type(prefix + "scan:0"), "string")
    check(one.delete(*names), 30)
    check(list(three.scan_iter(match=prefix + "scan:*")), [])


def keyspace(nodes, prefix):
    one, two, three = nodes
    names = {f"{prefix}cursor:{number}" for number in range(2_000)}
    with one.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.set(name, "1")
        pipe.execute()
    # As a client in JavaScript: every number is a double.
    cursor, found = 0, set()
    while True:
        cursor, page = two.scan(cursor, count=100, match=prefix + "cursor:*")
        found.update(page)
        assert cursor < 2**53, cursor
        cursor = int(float(cursor))
        if cursor == 0:
            break
    check(found, names)
    size = one.dbsize()
    check([two.dbsize(), three.dbsize()], [size, size])
    limit = time.monotonic() + 20
    for node in nodes:
        while node.info("keyspace").get("db0", {}).get("keys") != size:
            assert time.monotonic() < limit, f"{node.info('keyspace')} where {size} keys are"
    key = prefix + "inspected"
    one.set(key, "12")
    check([two.object("encoding", key), two.object("refcount", key)], ["int", 2147483647])
    refuses(lambda: two.object("freq", key), "An LFU maxmemory policy is not selected")
    refuses(lambda: two.object("idletime", key), "idle time not tracked")
    check(two.object("encoding", prefix + "absent"), None)
    assert two.memory_usage(key) > len(key)
    check(two.memory_usage(prefix + "absent"), None)
    assert three.memory_stats()["keys.count"] >= size, three.memory_stats()
    check(one.memory_purge(), True)
    refuses(lambda: one.setrange(key, 536870912, "x"), "string exceeds maximum allowed size")
    check(one.delete(*names), 2_000)


def pipelines(nodes, prefix):
    one, two, _ = nodes
    with one.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"{prefix}pipe:{number}", number)
            pipe.get(f"{prefix}pipe:{number}")
        replies = pipe.execute()
    check(replies, [item for number in range(100) for item in (True, str(number))])
    check(two.get(prefix + "pipe:99"), "99")


def transactions(nodes, prefix):
    one, two, three = nodes
    key, other = prefix + "transaction", prefix + "other"
    check(one.set(key, "5"), True)
    pipe = one.pipeline()
    pipe.decrby(key, 2).incrby(other, 2).lpush(prefix + "list", "a", "b").delete(prefix + "pipe:99")
    check(pipe.execute(), [3, 2, 2, 1])
    check([two.get(key), three.get(other), two.get(prefix + "pipe:99")], ["3", "2", None])
    with one.pipeline() as pipe:
        pipe.watch(key)
        check(two.set(key, "7"), True)
        pipe.multi()
        pipe.set(key, "half")
        try:
            pipe.execute()
            raise AssertionError("a watched key changed")
        except redis.WatchError:
            pass
    check(one.get(key), "7")

    def change(pipe):
        pipe.multi()
        pipe.set(other, "9")

    check(one.transaction(change, key), [True])
    check(three.get(other), "9")
    check(one.mset({key: "1", other: "2"}), True)
    check(two.mget(key, other), ["1", "2"])
    check(one.rename(key, key + ":new"), True)
    check([three.exists(key), three.get(key + ":new")], [0, "1"])


def connections(nodes):
    for node in nodes:
        check(node.ping(), True)
        check(node.echo("hello"), "hello")
        check(node.client_setname("tests"), True)
        check(node.client_getname(), "tests")
        assert node.info()["redis_version"].startswith("7.4")
        refuses(lambda: node.execute_command("DPING"), "unknown command")
        refuses(lambda: node.execute_command("GET"), "wrong number of arguments for 'get' command")
        assert node.command_count() > 50
    other = connect(PORTS[0], db=5)
    other.set("only-in-5", "x")
    check(nodes[1].get("only-in-5"), None)
    check(connect(PORTS[2], db=5).get("only-in-5"), "x")
    refuses(lambda: connect(PORTS[0], db=16).ping(), "DB index is out of range")


def main():
    nodes = [connect(port) for port in PORTS]
    prefix = f"resp{PROTOCOL}:"
    connections(nodes)
    strings(nodes, prefix)
    counters(nodes, prefix)
    lifetimes(nodes, prefix)
    keys(nodes, prefix)
    keyspace(nodes, prefix)
    pipelines(nodes, prefix)
    transactions(nodes, prefix)
    print("done")


main()
