"""An application that knows three nodes and takes the next one when one does not answer.

Usage: failover.py PORT PORT PORT. Prints "done".
"""

import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PORTS = [int(port) for port in sys.argv[1:]]


def connect(port):
    # The library's own retries would run an INCR more than once.
    return redis.Redis(port=port, socket_timeout=5, retry=Retry(NoBackoff(), 0))


def main():
    nodes = [connect(port) for port in PORTS]
    current = 0
    limit = time.monotonic() + 60
    for expected in range(1, 201):
        while True:
            try:
                value = nodes[current].incr("failover")
                break
            except redis.ConnectionError:
                # Refused: it was never sent.
                assert time.monotonic() < limit, "no node has answered for too long"
                current = (current + 1) % len(nodes)
        assert value == expected, f"{value} where {expected} was expected"
        current = (current + 1) % len(nodes)
    print("done")


main()
