"""Metrics, alert rules and dashboard against a real Prometheus (Debian's package).

Starts three nodes and a Prometheus that scrapes them. Every metric that the rules and the dashboard
name must exist there, every query of the dashboard must have a result, and an alert must fire when a
node is killed. Installs nothing: a missing Prometheus is unpacked below SUITE_DIR.
"""

import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from support.cluster import Cluster, free_ports

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = os.path.join(ROOT, "deploy/prometheus/palimpsest.rules.yml")
DASHBOARD = os.path.join(ROOT, "deploy/grafana/dashboards/palimpsest.json")
SECONDS_MAX = 120
# Series that need a fault or a longer run; the dashboard may show none.
MAY_BE_EMPTY = ["palimpsest_command_rejections_total", "palimpsest_peer_slow"]

passed, failed = 0, 0


def check(name, good, why=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print(f"ok {name}" if good else f"FAILED {name}: {why}", flush=True)
    return good


def eventually(name, question):
    """Asks until the answer is true; an exception is the answer no."""
    end, last = time.monotonic() + SECONDS_MAX, None
    while time.monotonic() < end:
        try:
            last = question()
            if last:
                return check(name, True)
        except (OSError, ValueError, KeyError) as error:
            last = error
        time.sleep(0.2)
    return check(name, False, f"not within {SECONDS_MAX} s: {last!r}")


def programs():
    """Paths of prometheus and promtool."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if all(found):
        return found
    folder = os.path.join(os.environ["SUITE_DIR"], "package")
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(f"{folder}/*.deb"):
        subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, check=True, stdout=sys.stderr)
    for package in glob.glob(f"{folder}/*.deb"):
        subprocess.run(["dpkg", "--extract", package, folder], check=True)
    return f"{folder}/usr/bin/prometheus", f"{folder}/usr/bin/promtool"


def tool(promtool, name, *arguments):
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True)
    check(name, done.returncode == 0, done.stdout + done.stderr)


def commands(port, lines):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        replies = connection.makefile("rb")
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            if replies.readline().startswith(b"$") and line.startswith("GET"):
                replies.readline()


class Prometheus:
    """Scrapes each second, and does not wait before an alert fires."""

    def __init__(self, program, admin_ports):
        self.folder = os.path.join(os.environ["SUITE_DIR"], "prometheus")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        with open(RULES) as file:
            rules = re.sub(r"^(\s+)for: .*$", r"\1for: 1s", file.read(), flags=re.MULTILINE)
        with open(os.path.join(self.folder, "rules.yml"), "w") as file:
            file.write(rules)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "palimpsest",
                    "basic_auth": {"username": "prometheus", "password": "scrape"},
                    "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in admin_ports]}],
                }
            ],
        }
        # YAML contains JSON.
        with open(os.path.join(self.folder, "prometheus.yml"), "w") as file:
            json.dump(config, file)
        (self.port,) = free_ports(1)
        self.log = open(os.path.join(self.folder, "log"), "wb")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def ask(self, path, **arguments):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{arguments}: {error.read().decode()}") from error

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def targets_up(self):
        return sum(target["health"] == "up" for target in self.ask("targets")["activeTargets"])

    def firing(self):
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def names_in(text):
    """Metrics that a query names, without labels and functions."""
    text = re.sub(r"\{\{.*?\}\}", "", text)
    return set(re.findall(r"\b(?:palimpsest|process)_[a-z0-9_]+\b", text))


def expressions():
    """Title and query of each series of the dashboard, with its variables replaced."""
    with open(DASHBOARD) as file:
        panels = json.load(file)["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], query.replace("$job", "palimpsest").replace("$instance", ".*")


def main():
    prometheus, promtool = programs()
    tests = os.path.join(ROOT, "deploy/prometheus/palimpsest.rules.test.yml")
    tool(promtool, "rules load", "check", "rules", RULES)
    tool(promtool, "rules keep their tests", "test", "rules", tests)
    example = os.path.join(ROOT, "deploy/prometheus/prometheus.yml")
    tool(promtool, "scrape example loads", "check", "config", example)

    secrets = []
    for name, secret in [("password", "sesame"), ("metrics-password", "scrape")]:
        path = os.path.join(os.environ["SUITE_DIR"], name)
        with open(path, "w") as file:
            file.write(secret + "\n")
        secrets += [f"--{name}-file", path]
    with Cluster(options=secrets) as cluster, Prometheus(prometheus, cluster.admin_ports) as server:
        eventually("three targets are up", lambda: server.targets_up() == 3)
        page = f"http://127.0.0.1:{cluster.admin_ports[0]}/metrics"
        text = lint(page, promtool)
        load = ["AUTH sesame"] + [f"SET key:{number} value EX 1000" for number in range(50)]
        load += ["SET text a", "INCR text", "GET text", "GET", "DEL text"]

        def query_under_load(query):
            """A rate is above zero only if the counter grows between two scrapes."""
            for port in cluster.ports:
                commands(port, load)
            return server.query(query)

        with open(RULES) as file:
            rules = file.read()
        named = names_in(rules) | {name for _, query in expressions() for name in names_in(query)}
        check("rules and dashboard name metrics", len(named) > 40, named)
        for name in sorted(named):
            eventually(f"{name} exists", lambda name=name: query_under_load(name))
        for title, query in expressions():
            if any(name in query for name in MAY_BE_EMPTY):
                server.query(query)
            else:
                eventually(f"{title}: {query}", lambda query=query: query_under_load(query))
        check("the page has help for each metric", text.count("# HELP") > 60)
        loaded = sum(len(group["rules"]) for group in server.ask("rules")["groups"])
        with open(RULES) as file:
            check("all rules are loaded", loaded == file.read().count("- alert:"), loaded)
        eventually("nothing but a full disk alerts at rest",
                   lambda: not server.firing() - {"PalimpsestDiskNearlyFull", "PalimpsestDiskFillsUp"})
        cluster.kill(2)
        for alert in ["PalimpsestNodeDown", "PalimpsestNoQuorumMargin", "PalimpsestPeerUnreachable"]:
            eventually(f"{alert} fires when a node is killed", lambda: alert in server.firing())
        cluster.start(2)
        cluster.wait_ready(2)
        eventually("the alert ends when the node is back",
                   lambda: "PalimpsestNodeDown" not in server.firing())
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def lint(page, promtool):
    """Gives the classic text to promtool; returns it."""
    request = urllib.request.Request(page, headers={"Authorization": "Basic eDpzY3JhcGU="})
    with urllib.request.urlopen(request, timeout=10) as reply:
        text = reply.read().decode()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    check("promtool finds no fault in the metrics", done.returncode == 0, done.stdout + done.stderr)
    return text


if __name__ == "__main__":
    sys.exit(main())
