"""The console in Chromium: all nodes on one page, a killed node, a full disk, narrow and dark.

Screenshots go to SUITE_DIR. The full disk is a small memory file system, which needs root.
"""

import base64
import os
import shutil
import subprocess
import sys
import time

import redis
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from support.cluster import Cluster

SECONDS_MAX = 60
SMALL_DISK = "size=96m"
SMALL_OPTIONS = ["--ring-size", "1MiB"]
FILL_BYTES = 88 << 20


class SmallDisk(Cluster):
    """Three nodes, the first of which has a small file system of its own."""

    def __enter__(self):
        config = os.path.join(self.folder, "palimpsest.toml")
        with open(config, "w") as file:
            file.write('[[database]]\nindex = 1\nprotocol = "hermes"\n')
        self.options += ["--config", config]
        self.small = os.path.join(self.folder, "1")
        os.makedirs(self.small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL_DISK, "none", self.small], check=True)
        try:
            return super().__enter__()
        except BaseException:
            self.unmount()
            raise

    def __exit__(self, *what):
        super().__exit__(*what)
        self.unmount()

    def unmount(self):
        subprocess.run(["umount", "--lazy", self.small], check=False)

    def fill(self):
        with open(os.path.join(self.small, "filler"), "wb") as file:
            try:
                for _ in range(FILL_BYTES >> 20):
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass

    def free(self):
        os.remove(os.path.join(self.small, "filler"))


def browser():
    options = Options()
    options.binary_location = shutil.which("chromium")
    for flag in [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ]:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={os.environ['SUITE_DIR']}/profile")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


class Page:
    def __init__(self, driver, url):
        self.driver = driver
        driver.get(url)

    def text(self, selector):
        return self.driver.execute_script(
            "const it = document.querySelector(arguments[0]); return it ? it.textContent : ''", selector
        )

    def count(self, selector):
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def row(self, node):
        return self.text(f"#nodes tr[data-node='{node}']")

    def resize(self, width, height):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def scheme(self, name):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": name}]},
        )

    def background(self):
        return self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    def overflow(self):
        return self.driver.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def shoot(self, name):
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        with open(os.path.join(os.environ["SUITE_DIR"], f"{name}.png"), "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def errors(self):
        return [it["message"] for it in self.driver.get_log("browser") if it["level"] == "SEVERE"]


def eventually(condition):
    end = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


class Verdict:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, claim, holds):
        print("ok    " if holds else "FAILED", claim, flush=True)
        self.passed += bool(holds)
        self.failed += not holds


def load(cluster, index, seconds):
    client = redis.Redis(port=cluster.ports[index], socket_timeout=5)
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        with client.pipeline(transaction=False) as pipe:
            for _ in range(100):
                number += 1
                pipe.set(f"key:{number % 5000}", f"value {number}")
            pipe.execute(raise_on_error=False)


def tour(cluster, page, verdict):
    check = verdict.check
    check("a whole cluster is healthy", eventually(lambda: page.text("#state") == "healthy"))
    check("each node has a row", page.count("#nodes tbody tr") == 3)
    check("each row is ready", all("ready" in page.row(node) for node in (1, 2, 3)))
    database = "#databases tr[data-database='1']"

    def members():
        return sorted(page.text(f"{database} td:last-child").split(", "))

    check("the first database and one of another protocol have a row", page.count("#databases tbody tr") == 2)
    check("a group names its members", eventually(lambda: members() == ["1", "2", "3"]))
    load(cluster, 0, 12)
    load(cluster, 1, 6)
    check("eight charts have a line per node", page.count("figure svg path.series") == 24)
    check("each chart has axes", page.count("figure svg text") == 8 * 6)
    lines = "return [...document.querySelectorAll('path.series')].filter(p => p.getAttribute('d').includes('L')).length"
    check("the lines have points", eventually(lambda: page.driver.execute_script(lines) >= 18))
    page.resize(1400, 1500)
    page.shoot("healthy-1400")

    page.driver.find_element(By.NAME, "key").send_keys("key:1")
    page.driver.find_element(By.CSS_SELECTOR, "#inspect button").click()
    agree = "3 of 3 replicas agree"
    check("the inspector explains a key", eventually(lambda: agree in page.text("#explanation")))
    check("the inspector shows each replica", page.text("#explanation").count("present") == 3)

    cluster.kill(2)
    check("a killed node is down", eventually(lambda: "down" in page.row(3)))
    check("the cluster is degraded", eventually(lambda: page.text("#state") == "degraded"))
    check("a warning names the node", eventually(lambda: "node 3" in page.text("#warnings")))
    check("a group goes on without it", eventually(lambda: members() == ["1", "2"]))
    check("an event names the node", eventually(lambda: "3" in page.text("#events li")))
    load(cluster, 0, 4)
    page.shoot("killed-1400")
    page.scheme("light")
    light = page.background()
    page.scheme("dark")
    check("a dark scheme is dark", page.background() != light)
    page.shoot("killed-1400-dark")
    page.scheme("light")
    cluster.start(2)
    cluster.wait_ready(2)
    check("a restarted node is ready", eventually(lambda: "ready" in page.row(3)))
    check("it is a member again", eventually(lambda: members() == ["1", "2", "3"]))

    cluster.fill()
    try:
        load(cluster, 0, 2)
        check("a full disk shows", eventually(lambda: "refused" in page.row(1)))
        check("a warning names it", eventually(lambda: "refused" in page.text("#warnings")))
        page.shoot("full-1400")
    finally:
        cluster.free()
    check("a free disk shows", eventually(lambda: "refused" not in page.row(1)))

    page.resize(420, 900)
    check("a narrow page does not overflow", eventually(lambda: page.overflow() <= 0))
    page.shoot("narrow-420")
    check("the browser reports no error", not page.errors())


def main():
    verdict = Verdict()
    with SmallDisk(options=SMALL_OPTIONS) as cluster:
        driver = browser()
        try:
            tour(cluster, Page(driver, f"http://127.0.0.1:{cluster.admin_ports[0]}/"), verdict)
        finally:
            driver.quit()
    print(f"{verdict.passed} passed, {verdict.failed} failed")
    return 1 if verdict.failed else 0


sys.exit(main())
