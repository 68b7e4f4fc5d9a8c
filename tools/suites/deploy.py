"""Deployment files: linted, rendered, validated against schemas, and their nodes started.

No container engine is needed: nodes start as processes with the command and environment that the
files give them, on loopback addresses in place of the containers' own.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import urllib.request

import kubernetes_validate
import redis
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, "..", "..", "deploy")
CHART = os.path.join(DEPLOY, "helm", "palimpsest")
BINARY = os.environ["PALIMPSEST_BIN"]
FILES = os.environ["SUITE_DIR"]
TOOLS = os.path.dirname(sys.executable)
KUBERNETES = "1.30"
# A helm of one's own build knows no version.
HELM_TEMPLATE = ["helm", "template", "--kube-version", KUBERNETES, "--namespace", "default"]
READY_SECONDS_MAX = 60
PASSWORD = "correct horse"


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command[0]}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def rendered(*settings, release="palimpsest"):
    command = HELM_TEMPLATE + [release, CHART]
    for setting in settings:
        command += ["--set", setting]
    return [it for it in yaml.safe_load_all(output(*command)) if it]


def of_kind(documents, kind):
    found = [it for it in documents if it["kind"] == kind]
    assert found, f"no {kind}"
    return found[0]


def options_of_serve():
    """Flags, and the variables that stand for them."""
    text = output(BINARY, "serve", "--help")
    flags = set(re.findall(r"--[a-z][a-z-]+", text))
    variables = {"PALIMPSEST_" + flag[2:].replace("-", "_").upper() for flag in flags}
    return flags, variables


# Linters and schemas.


def dockerfile_passes_hadolint():
    output(os.path.join(TOOLS, "hadolint"), os.path.join(DEPLOY, "docker", "Dockerfile"))


def compose_accepts_its_file():
    path = os.path.join(DEPLOY, "docker", "compose.yaml")
    found = yaml.safe_load(output(os.path.join(TOOLS, "docker-compose"), "-f", path, "config"))
    assert list(found["services"]) == ["node1", "node2", "node3"]


def chart_passes_lint():
    output("helm", "lint", "--strict", CHART)


def chart_renders_valid_resources():
    for settings in [
        [],
        ["replicas=5", "antiAffinity=required", "auth.existingSecret=mine"],
        ["extraArgs={--max-value-size,4MB}", "persistence.storageClass=fast", "durability=volatile"],
    ]:
        documents = rendered(*settings)
        assert len(documents) >= 4, documents
        for document in documents:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


def chart_refuses_wrong_values():
    for setting in ["replicas=2", "durability=none"]:
        command = HELM_TEMPLATE + [CHART, "--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "must be" in done.stderr, done


def manifests_equal_rendered_chart():
    documents = list(yaml.safe_load_all(read("kubernetes", "palimpsest.yaml")))
    expected = rendered("auth.existingSecret=palimpsest")
    assert [it for it in documents if it] == expected, "run tools/suites/deploy.py --write"
    for document in expected:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def stateful_set_probes_and_protects():
    documents = rendered()
    spec = of_kind(documents, "StatefulSet")["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert spec["podManagementPolicy"] == "Parallel" and spec["replicas"] == 3
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    names = {it["metadata"]["name"]: it["spec"] for it in documents if it["kind"] == "Service"}
    headless = names[spec["serviceName"]]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    assert of_kind(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert set(of_kind(documents, "Secret")["data"]) == {"password", "cluster-secret"}


def variables_are_options_of_serve():
    flags, variables = options_of_serve()
    container = of_kind(rendered(), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    text = "\n".join(
        read(*path)
        for path in [("docker", "compose.yaml"), ("docker", "Dockerfile"), ("systemd", "palimpsest@.service")]
    )
    text += yaml.safe_dump(container)
    named = set(re.findall(r"PALIMPSEST_[A-Z_]+", text))
    assert named and named <= variables, named - variables
    for flag in re.findall(r"palimpsest serve .*", text):
        used = set(re.findall(r" (--[a-z-]+)", flag))
        assert used <= flags, used - flags


# systemd.


def unit_passes_systemd_analyze():
    unit = read("systemd", "palimpsest@.service").replace("/usr/bin/palimpsest", BINARY)
    # The manual pages come with the package.
    unit = re.sub(r"Documentation=.*\n", "", unit)
    path = os.path.join(FILES, "palimpsest@1.service")
    with open(path, "w", encoding="utf-8") as file:
        file.write(unit)
    said = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "palimpsest" not in said.stderr, said.stderr
    said = output("systemd-analyze", "security", "--offline=true", "--threshold=20", path)
    assert "Overall exposure level" in said


def unit_allows_system_calls_of_a_node():
    """strace lists the calls of three nodes under load; the unit's filter must allow each."""
    unit = read("systemd", "palimpsest@.service")
    extra = {it for line in re.findall(r"SystemCallFilter=(io_uring.*)", unit) for it in line.split()}
    allowed = expand("@system-service") - expand("@privileged") - expand("@resources")
    allowed |= expand("@default") | extra
    trace = os.path.join(FILES, "calls")
    with open(os.path.join(FILES, "traced.log"), "wb") as log:
        command = ["strace", "-f", "-c", "-o", trace, BINARY, "dev", "--port", "20379", "--data-dir"]
        folder = os.path.join(FILES, "traced")
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen(command + [folder], stdout=log, stderr=log)
    try:
        client = redis.Redis(port=20379, retry=Retry(NoBackoff(), 0), socket_timeout=10)
        wait_until(lambda: client.set("k", "v"))
        for number in range(200):
            client.set(f"k{number}", number)
    finally:
        # strace ends, and writes, when the nodes have ended.
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
            os.kill(int(file.read()), signal.SIGTERM)
        process.wait()
    with open(trace, encoding="utf-8") as file:
        used = {line.split()[-1] for line in file if re.match(r"\s*\d+\.\d+ ", line)} - {"total"}
    assert "execve" in used and len(used) > 10, used
    assert used <= allowed, used - allowed


def expand(name):
    """Members of a set of calls, those of the sets in it included."""
    members, waiting = set(), [name]
    while waiting:
        text = output("systemd-analyze", "syscall-filter", waiting.pop())
        for line in text.splitlines()[1:]:
            word = line.strip()
            if word.startswith("@"):
                waiting.append(word)
            elif word and not word.startswith("#"):
                members.add(word)
    return members


# Nodes.


def wait_until(condition):
    end = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            if condition():
                return
        except (OSError, redis.RedisError):
            pass
        assert time.monotonic() < end, "the nodes are not ready"
        time.sleep(0.1)


def is_ready(url):
    with urllib.request.urlopen(url, timeout=5) as reply:
        return reply.status == 200


def secrets():
    folder = os.path.join(FILES, "secrets")
    os.makedirs(folder, exist_ok=True)
    for name, text in [("password", PASSWORD), ("cluster-secret", "0123456789abcdef" * 4)]:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return folder


def serve(commands, hosts):
    """Starts nodes, writes through one, kills it, reads through another, checks the password."""
    processes = []
    try:
        for command, environment in commands:
            with open(os.path.join(FILES, "nodes.log"), "ab") as log:
                environment = {"PATH": os.path.dirname(BINARY) + ":" + os.environ["PATH"], **environment}
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        for host in hosts:
            wait_until(lambda host=host: is_ready(f"http://{host}:7379/readyz"))
            assert is_ready(f"http://{host}:7379/livez")
        clients = [redis.Redis(host=host, port=6379, password=PASSWORD) for host in hosts]
        assert clients[0].incr("visits") == 1
        processes[0].kill()
        assert clients[1].incr("visits") == 2 and clients[2].get("visits") == b"2"
        try:
            redis.Redis(host=hosts[1], port=6379).get("visits")
            raise AssertionError("no password is needed")
        except redis.AuthenticationError:
            pass
        for process in processes[1:]:
            process.terminate()
        assert [process.wait(30) for process in processes[1:]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def data_folder(kind, index):
    folder = os.path.join(FILES, kind, str(index))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def compose_file_starts_a_cluster():
    services = yaml.safe_load(read("docker", "compose.yaml"))["services"]
    assert list(services) == ["node1", "node2", "node3"]
    commands, hosts = [], []
    for index, service in enumerate(services.values()):
        assert service["healthcheck"]["test"][-1] == "http://127.0.0.1:7379/readyz"
        host = service["networks"]["cluster"]["ipv4_address"].replace("172.28.", "127.28.")
        environment = dict(service["environment"])
        for name, value in environment.items():
            value = value.replace("172.28.", "127.28.").replace("0.0.0.0", host)
            value = value.replace("/run/secrets", secrets())
            environment[name] = data_folder("compose", index) if value == "/data" else value
        commands.append(([BINARY, "serve"], environment))
        hosts.append(host)
    serve(commands, hosts)


def stateful_set_starts_a_cluster():
    container = of_kind(rendered(), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    hosts = [f"127.28.64.{11 + index}" for index in range(3)]

    def here(text, index):
        for number, host in enumerate(hosts):
            text = text.replace(f"palimpsest-{number}.palimpsest-nodes.default.svc", host)
        return text.replace("0.0.0.0", hosts[index]).replace("/run/secrets/palimpsest", secrets())

    commands = []
    for index in range(3):
        environment = {it["name"]: here(it["value"], index) for it in container["env"] if "value" in it}
        environment["POD_NAME"] = f"palimpsest-{index}"
        assert environment["PALIMPSEST_DATA_DIR"] == "/data/node"
        environment["PALIMPSEST_DATA_DIR"] = data_folder("stateful", index) + "/node"
        commands.append((container["command"] + container.get("args", []), environment))
    serve(commands, hosts)


CHECKS = [
    dockerfile_passes_hadolint,
    compose_accepts_its_file,
    chart_passes_lint,
    chart_renders_valid_resources,
    chart_refuses_wrong_values,
    manifests_equal_rendered_chart,
    stateful_set_probes_and_protects,
    variables_are_options_of_serve,
    unit_passes_systemd_analyze,
    unit_allows_system_calls_of_a_node,
    compose_file_starts_a_cluster,
    stateful_set_starts_a_cluster,
]


def write_manifests():
    settings = ["--set", "auth.existingSecret=palimpsest"]
    text = output(*HELM_TEMPLATE, "palimpsest", CHART, *settings)
    head = re.match(r"(#.*\n)+", read("kubernetes", "palimpsest.yaml")).group()
    with open(os.path.join(DEPLOY, "kubernetes", "palimpsest.yaml"), "w", encoding="utf-8") as file:
        file.write(head + text)


def main():
    if "--write" in sys.argv:
        write_manifests()
        return 0
    passed = 0
    for check in CHECKS:
        try:
            check()
            passed += 1
            print("ok    ", check.__name__, flush=True)
        except Exception:  # Each check is one test, however it fails.
            print("FAILED", check.__name__, flush=True)
            traceback.print_exc()
    print(f"{passed} passed, {len(CHECKS) - passed} failed")
    return 0 if passed == len(CHECKS) else 1


sys.exit(main())
