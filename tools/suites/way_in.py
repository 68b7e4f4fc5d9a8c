"""Cluster and sentinel modes of client libraries: writes go on while a node is down, and none is lost.

Each program in tools/suites/way_in gets a library's mode and three addresses: of the nodes for `cluster`,
of the sentinel ports for `sentinel`. It prints `ready`. For each line `write N` on its standard input it
writes N keys `w:NUMBER` with their number as value, and repeats a write that fails. It prints `half` and
`written`. For the line `check` it reads all keys and prints `ok` or `FAILED why`.
"""

import json
import subprocess
import sys
import time

import redis

from support.cluster import Cluster
from support.conversation import Conversation
from support.examples import built

FOLDER = "way_in"
LIBRARIES = [
    ("redis-py", "python"),
    ("go-redis", "go"),
    ("ioredis", "node"),
    ("jedis", "java"),
    ("lettuce", "java"),
    ("redisson", "java"),
]
MODES = ["cluster", "sentinel"]
SHORT = ["redis-py"]
WRITES = 400
SECONDS_MAX = 150


def check_values(cluster, count):
    """Reads what was acknowledged, by other means."""
    client = redis.Redis(port=cluster.ports[0], decode_responses=True)
    lost = [number for number in range(count) if client.get(f"w:{number}") != str(number)]
    if lost:
        raise AssertionError(f"{len(lost)} acknowledged writes are lost, the first is w:{lost[0]}")


def survive(program, library, mode):
    """Kills each node in turn while the program writes."""
    with Cluster(sentinels=True) as cluster:
        addresses = cluster.addresses()
        if mode == "sentinel":
            addresses = [f"127.0.0.1:{port}" for port in cluster.sentinel_ports]
        conversation = Conversation(program + [library, mode] + addresses, SECONDS_MAX)
        try:
            conversation.read_until("ready")
            written = 0
            for index in range(3):
                conversation.say(f"write {WRITES}")
                conversation.read_until("half")
                cluster.kill(index)
                conversation.read_until("written")
                written += WRITES
                cluster.start(index)
                cluster.wait_ready(index)
            conversation.say("check")
            conversation.read_until("ok")
            check_values(cluster, written)
        finally:
            conversation.end()


def main():
    short = "--short" in sys.argv
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")]
    passed, failed, results, programs = 0, 0, {}, {}
    for library, language in LIBRARIES:
        if (short and library not in SHORT) or (wanted and library not in wanted):
            continue
        for mode in MODES:
            begun = time.monotonic()
            why = ""
            try:
                if language not in programs:
                    programs[language] = built(FOLDER, language)
                survive(programs[language], library, mode)
            except (AssertionError, BrokenPipeError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
                why = f": {error}"
            seconds = time.monotonic() - begun
            passed, failed = (passed, failed + 1) if why else (passed + 1, failed)
            results[f"{library} {mode}"] = not why
            print(f"{'FAILED' if why else 'ok    '} {library} {mode} ({seconds:.1f} s){why}", flush=True)
    print(json.dumps(results))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
