"""go-redis' own specs of commands on three nodes, in RESP2 and RESP3.

The specs come with the library's module. compat/skip-go-redis.toml names those that need features which this
store does not have. Each protocol is one check of this suite.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as tree

from support.cluster import Cluster
from support.compatibility import note, share, skips

VERSION = "v9.23.0"
MODULE = "github.com/redis/go-redis/v9"
FOCUS = "^go-redis (Commands|Tx|pipelining|ScanIterator|BitCountBite|BitCountByte|Conn|Client should|Client OnConnect|Hook) "
SECONDS_MAX = 900
# A run with one protocol is good if at least this share of its specs passes.
WANTED = 0.97
# The specs choose no protocol: these lines of main_test.go make the options of their clients.
OPTIONS = "\t\topt := &redis.Options{\n"


def unpacked(folder):
    """A copy of the module's source that can be changed and built."""
    told = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=folder, check=True, capture_output=True, text=True
    )
    source = json.loads(told.stdout)["Dir"]
    copy = os.path.join(folder, "go-redis")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    subprocess.run(["chmod", "-R", "u+w", copy], check=True)
    return copy


def built(source, protocol):
    """The test program whose clients speak this protocol."""
    path = os.path.join(source, "main_test.go")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if OPTIONS not in text:
        raise RuntimeError("main_test.go makes its options in another way")
    original = text
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(OPTIONS, f"{OPTIONS}\t\t\tProtocol: {protocol},\n"))
    program = os.path.join(source, f"resp{protocol}.test")
    subprocess.run(["go", "test", "-c", "-o", program, "."], cwd=source, check=True, stdout=sys.stderr)
    with open(path, "w", encoding="utf-8") as file:
        file.write(original)
    return program


def tested(program, folder, port):
    endpoints = os.path.join(folder, "endpoints.json")
    with open(endpoints, "w", encoding="utf-8") as file:
        json.dump({"nodes": {"endpoints": [f"redis://127.0.0.1:{port}"]}}, file)
    with open(skips("go-redis"), "rb") as file:
        groups = tomllib.load(file)["skip"]
    report = f"{program}.xml"
    command = [program, "-test.run", "TestGinkgoSuite", "-ginkgo.no-color", f"-ginkgo.focus={FOCUS}"]
    command += [f"-ginkgo.skip={group}" for group in groups]
    command += [f"-ginkgo.junit-report={report}", f"-ginkgo.timeout={SECONDS_MAX}s"]
    environment = dict(os.environ, RE_CLUSTER="true", REDIS_VERSION="7.4", REDIS_ENDPOINTS_CONFIG_PATH=endpoints)
    with open(f"{program}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log)
    if not os.path.exists(report):
        with open(f"{program}.log", encoding="utf-8") as log:
            raise RuntimeError(f"no spec ran: {log.read()[-2000:]}")
    passed, failures = 0, []
    for case in tree.parse(report).getroot().iter("testcase"):
        if not case.get("name").startswith("[It]"):
            continue
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            failures.append(f"{case.get('name')}: {(bad.get('message') or '').splitlines()[:1]}")
        elif case.find("skipped") is None:
            passed += 1
    return passed, failures


def main():
    folder = os.environ["SUITE_DIR"]
    source = unpacked(folder)
    passed = failed = 0
    for protocol in [2, 3]:
        program = built(source, protocol)
        with Cluster(options=["--durability", "volatile", "--max-value-size", "16MB"]) as cluster:
            good, failures = tested(program, source, cluster.ports[0])
        for failure in failures:
            print(f"       RESP{protocol} {failure}")
        is_enough = good >= WANTED * (good + len(failures)) and good > 0
        verdict = "ok    " if is_enough else "FAILED"
        print(f"{verdict} RESP{protocol}: {good} specs passed, {len(failures)} did not: {share(good, len(failures))}", flush=True)
        note(f"go-redis {VERSION}, RESP{protocol}", good, len(failures))
        passed, failed = passed + is_enough, failed + (not is_enough)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
