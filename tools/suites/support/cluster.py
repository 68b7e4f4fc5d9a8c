"""Three nodes on this machine, which a suite starts, kills and starts again."""

import os
import random
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

READY_SECONDS_MAX = 60


def free_ports(count):
    """Picks ports below those of outgoing connections, which could take one in between."""
    ports = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


class Cluster:
    """Use as a context manager: leaving it kills all nodes."""

    def __init__(self, nodes=3, options=(), sentinels=False):
        self.binary = os.environ["PALIMPSEST_BIN"]
        self.folder = os.path.join(os.environ["SUITE_DIR"], "nodes")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        ports = free_ports(4 * nodes)
        self.ports = ports[:nodes]
        self.peer_ports = ports[nodes : 2 * nodes]
        self.admin_ports = ports[2 * nodes : 3 * nodes]
        self.sentinel_ports = ports[3 * nodes :] if sentinels else []
        self.options = list(options)
        self.processes = [None] * nodes

    def __enter__(self):
        for index in range(len(self.processes)):
            self.start(index)
        for index in range(len(self.processes)):
            self.wait_ready(index)
        return self

    def __exit__(self, *_):
        for index, process in enumerate(self.processes):
            if process is not None:
                self.kill(index)

    def addresses(self):
        return [f"127.0.0.1:{port}" for port in self.ports]

    def log_path(self, index):
        return os.path.join(self.folder, f"{index + 1}.log")

    def start(self, index):
        members = ",".join(
            f"{number + 1}=127.0.0.1:{port}@{peer}"
            for number, (port, peer) in enumerate(zip(self.ports, self.peer_ports))
        )
        command = [self.binary, "serve", "--id", str(index + 1), "--cluster", members]
        command += ["--listen", f"127.0.0.1:{self.ports[index]}"]
        command += ["--peer-listen", f"127.0.0.1:{self.peer_ports[index]}"]
        command += ["--admin-listen", f"127.0.0.1:{self.admin_ports[index]}"]
        command += ["--data-dir", os.path.join(self.folder, str(index + 1))]
        if self.sentinel_ports:
            command += ["--sentinel-listen", f"127.0.0.1:{self.sentinel_ports[index]}"]
        with open(self.log_path(index), "ab") as log:
            self.processes[index] = subprocess.Popen(
                command + self.options, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_ready(self, index):
        url = f"http://127.0.0.1:{self.admin_ports[index]}/readyz"
        end = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as reply:
                    if reply.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                pass
            if self.processes[index].poll() is not None or time.monotonic() > end:
                with open(self.log_path(index), errors="replace") as log:
                    raise RuntimeError(f"node {index + 1} is not ready:\n{log.read()[-2000:]}")
            time.sleep(0.05)

    def kill(self, index):
        """kill -9."""
        self.processes[index].kill()
        self.processes[index].wait()
        self.processes[index] = None
