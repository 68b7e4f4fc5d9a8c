"""The examples of README.md, run as they stand there.

Each counts a visit through three nodes, is run again after the first node is killed, and must go
on counting. Only the ports differ from the page.
"""

import os
import re
import subprocess
import sys

from support.cluster import Cluster
from support.examples import LANGUAGES, copied

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
PORTS = [6379, 6380, 6381]
SECONDS_MAX = 60

GO = """package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
%s}
"""

JAVA = """package example;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.providers.PooledConnectionProvider;

public class Main {
  public static void main(String[] args) throws Exception {
%s  }
}
"""

# The fence of each example, the file it becomes, and the program around it.
EXAMPLES = {
    "python": ("python", "main.py", "%s"),
    "go": ("go", "main.go", GO),
    # node-redis keeps the process alive as long as its connections stand.
    "node": ("js", "main.mjs", "%sprocess.exit(0);\n"),
    "java": ("java", "src/main/java/example/Main.java", JAVA),
}


def example(page, fence, ports):
    (text,) = re.findall(rf"^```{fence}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for port, real in zip(PORTS, ports):
        assert str(port) in text, f"the example in {fence} does not name port {port}"
        text = text.replace(str(port), str(real))
    return text


def count(command):
    """Runs the example and returns the number that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    numbers = re.findall(r"\d+", done.stdout)
    if done.returncode != 0 or not numbers:
        raise RuntimeError(f"exit {done.returncode}: {done.stdout}{done.stderr}")
    return int(numbers[0])


def check(name, page):
    fence, file, frame = EXAMPLES[name]
    with Cluster() as cluster:
        folder = copied(name)
        with open(os.path.join(folder, file), "w") as program:
            program.write(frame % example(page, fence, cluster.ports))
        command = LANGUAGES[name](folder)
        counts = [count(command)]
        cluster.kill(0)
        counts.append(count(command))
    if counts != [1, 2]:
        raise RuntimeError(f"counted {counts}")


def main():
    with open(README) as file:
        page = file.read()
    failed = 0
    for name in EXAMPLES:
        try:
            check(name, page)
            print(f"ok     {name}", flush=True)
        except (OSError, ValueError, AssertionError, RuntimeError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
    print(f"{len(EXAMPLES) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
