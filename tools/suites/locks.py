"""Lock libraries on three nodes: one holder at a time, extension, expiry, and a holder whose node is killed.

Each program in tools/suites/locks gets a library and three sentinel ports. Two of its clients begin at different
nodes. It prints `held` once a client holds a lock, waits for a line, and prints `done` or `FAILED why`.
"""

import os
import subprocess
import sys
import time
import tomllib

from support.cluster import Cluster
from support.compatibility import note, skips
from support.conversation import Conversation
from support.examples import built, copied
from support.packages import installed

LIBRARIES = [
    ("redlock-py", "python"),
    ("redis-py", "python"),
    ("python-redis-lock", "python"),
    ("pottery", "python"),
    ("redlock", "node"),
    ("redis-semaphore", "node"),
    ("redsync", "go"),
    ("redislock", "go"),
    ("rueidislock", "go"),
]
SECONDS_MAX = 120


def program(language):
    if language != "python":
        return built("locks", language)
    folder = copied(language, "locks")
    return [installed(folder, os.path.join(folder, "requirements.txt")), os.path.join(folder, "main.py")]


def hold(command, library):
    """Kills the holder's node."""
    with Cluster(sentinels=True) as cluster:
        addresses = [f"127.0.0.1:{port}" for port in cluster.sentinel_ports]
        conversation = Conversation(command + [library] + addresses, SECONDS_MAX)
        try:
            conversation.read_until("held")
            cluster.kill(0)
            conversation.say("killed")
            conversation.read_until("done")
        finally:
            conversation.end()


def main():
    with open(skips("locks"), "rb") as file:
        skipped = tomllib.load(file)["skip"]
    for library, reason in skipped.items():
        print(f"skipped {library}: {reason}")
    passed, failed, programs = 0, 0, {}
    for library, language in LIBRARIES:
        begun, why = time.monotonic(), ""
        try:
            if language not in programs:
                programs[language] = program(language)
            hold(programs[language], library)
        except (AssertionError, BrokenPipeError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
            why = f": {error}"
        seconds = time.monotonic() - begun
        passed, failed = (passed, failed + 1) if why else (passed + 1, failed)
        print(f"{'FAILED' if why else 'ok    '} {library} ({seconds:.1f} s){why}", flush=True)
    note("lock libraries", passed, failed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
