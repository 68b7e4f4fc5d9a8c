"""First use with client libraries, and failover while each node in turn is killed.

Each folder in tools/suites/clients is an example for one language. It gets three addresses, prints
`ok NAME` or `FAILED NAME: why` per subject, and counts while this program kills nodes:
for each line `count` on its standard input it increments 300 times and prints `50` after each 50.
The line `end` makes it compare the sum.
"""

import subprocess
import sys
import threading
import time

from support.cluster import Cluster
from support.examples import LANGUAGES, copied

SUBJECTS = ["strings", "counters", "expiry", "pipeline", "lock", "once", "failover"]
SECONDS_MAX = 180
SHORT = ["python", "node"]


def converse(program, cluster):
    """Runs one example. Returns the subjects that held, and complaints."""
    child = subprocess.Popen(
        program + cluster.addresses(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(SECONDS_MAX, child.kill)
    watchdog.start()
    held, complaints = set(), []

    def read_until(wanted):
        for line in child.stdout:
            line = line.strip()
            if line == wanted:
                return True
            if line.startswith("ok "):
                held.add(line[3:])
            elif line.startswith("FAILED "):
                complaints.append(line[7:])
        return False

    def say(line):
        child.stdin.write(line + "\n")
        child.stdin.flush()

    try:
        read_until("ready to count")
        for index in range(len(cluster.processes)):
            say("count")
            read_until("50")
            cluster.kill(index)
            if not read_until("counted"):
                complaints.append(f"it ended while node {index + 1} was down")
                break
            cluster.start(index)
            cluster.wait_ready(index)
        say("end")
        read_until(None)
    except BrokenPipeError:
        complaints.append("it ended early")
    finally:
        child.kill()
        child.wait()
        watchdog.cancel()
    return held, complaints


def main():
    names = SHORT if "--short" in sys.argv else list(LANGUAGES)
    passed = failed = 0
    for name in names:
        start = time.monotonic()
        try:
            program = LANGUAGES[name](copied(name))
            with Cluster() as cluster:
                held, complaints = converse(program, cluster)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            held, complaints = set(), [str(error)]
        for subject in SUBJECTS:
            print(f"{'ok    ' if subject in held else 'FAILED'} {name}: {subject}", flush=True)
        for complaint in complaints:
            print(f"       {name}: {complaint}")
        good = len(held.intersection(SUBJECTS))
        passed += good
        failed += max(len(SUBJECTS) - good, len(complaints))
        print(f"       {name}: {time.monotonic() - start:.1f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
