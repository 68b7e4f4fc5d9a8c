"""redis-py's own tests on three nodes, in RESP2 and RESP3.

The tests come with the library's source package. compat/skip-redis-py.toml names those that need features
which this store does not have. Each protocol is one check of this suite.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as tree

from support.cluster import Cluster
from support.compatibility import note, share, skips
from support.packages import installed

VERSION = "8.1.0"
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "redis_py")
# The rest tests the library alone, modules, TLS or several servers.
FILES = ["client", "commands", "connect", "connection", "connection_pool", "encoding", "function", "hash", "lock"]
FILES += ["monitor", "multiprocessing", "pipeline", "pubsub", "retry", "scripting"]
SHORT_FILES = ["commands", "hash", "pipeline"]
SECONDS_MAX = 60
# A run with one protocol is good if at least this share of its tests passes.
WANTED = 0.97


def run(*command):
    subprocess.run(command, check=True, stdout=sys.stderr)


def unpacked(folder, python):
    """The folder with the library's tests."""
    archive = os.path.join(folder, f"redis-{VERSION}.tar.gz")
    if not os.path.exists(archive):
        command = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run(python, *command, "--no-binary", "redis", "--dest", folder, f"redis=={VERSION}")
    tests = os.path.join(folder, "tests")
    shutil.rmtree(tests, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(tests, filter="data")
    # Beside the tests lies the library, which must not hide the installed one.
    inner = os.path.join(tests, f"redis-{VERSION}")
    shutil.rmtree(os.path.join(inner, "redis"))
    return inner


def tests_of(folder, short):
    found = []
    for name in SHORT_FILES if short else FILES:
        for parent in ["tests"] if short else ["tests", os.path.join("tests", "test_asyncio")]:
            path = os.path.join(parent, f"test_{name}.py")
            if os.path.exists(os.path.join(folder, path)):
                found.append(path)
    return found


def tested(python, folder, port, protocol, short):
    """Runs the tests; returns how many passed, and what failed."""
    report = os.path.join(folder, f"resp{protocol}.xml")
    command = [python, "-m", "pytest", "--quiet", "-p", "palimpsest_skips", "-p", "no:cacheprovider", "-p", "no:warnings"]
    command += [f"--timeout={SECONDS_MAX}", "--tb=line", f"--junitxml={report}", "--capture=fd"]
    command += [f"--redis-url=redis://127.0.0.1:{port}/0", f"--protocol={protocol}"]
    environment = dict(os.environ, PYTHONPATH=HERE, COMPAT_SKIPS=skips("redis-py"))
    if short:
        environment["COMPAT_SHORT"] = "1"
    log = os.path.join(folder, f"resp{protocol}.log")
    with open(log, "w", encoding="utf-8") as file:
        subprocess.run(command + tests_of(folder, short), cwd=folder, env=environment, stdout=file, stderr=file)
    if not os.path.exists(report):
        with open(log, encoding="utf-8") as file:
            raise RuntimeError(f"no test ran: {file.read()[-2000:]}")
    passed, failures = 0, []
    for case in tree.parse(report).getroot().iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            failures.append(f"{case.get('classname')}.{case.get('name')}: {(bad.get('message') or '').splitlines()[:1]}")
        elif case.find("skipped") is None:
            passed += 1
    return passed, failures


def main():
    short = "--short" in sys.argv
    folder = os.environ["SUITE_DIR"]
    python = installed(folder, os.path.join(HERE, "requirements.txt"))
    tests = unpacked(folder, python)
    passed = failed = 0
    for protocol in [3] if short else [2, 3]:
        with Cluster(options=["--durability", "volatile", "--max-value-size", "16MB"]) as cluster:
            good, failures = tested(python, tests, cluster.ports[0], protocol, short)
        for failure in failures:
            print(f"       RESP{protocol} {failure}")
        is_enough = good >= WANTED * (good + len(failures)) and good > 0
        verdict = "ok    " if is_enough else "FAILED"
        print(f"{verdict} RESP{protocol}: {good} tests passed, {len(failures)} did not: {share(good, len(failures))}", flush=True)
        if not short:
            note(f"redis-py {VERSION}, RESP{protocol}", good, len(failures))
        passed, failed = passed + is_enough, failed + (not is_enough)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
