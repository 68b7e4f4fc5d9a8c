"""A program that a suite talks with, line by line."""

import subprocess
import threading


class Conversation:
    """One program. It is killed after `seconds_max`. A line that begins with FAILED ends it too."""

    def __init__(self, command, seconds_max):
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors = []
        threading.Thread(target=self.drain, daemon=True).start()
        self.watchdog = threading.Timer(seconds_max, self.child.kill)
        self.watchdog.start()

    def drain(self):
        for line in self.child.stderr:
            self.errors.append(line.rstrip())
            del self.errors[:-20]

    def say(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def read_until(self, wanted):
        for line in self.child.stdout:
            line = line.strip()
            if line == wanted:
                return
            if line.startswith("FAILED"):
                raise AssertionError(line)
        raise AssertionError(f"it ended before it printed '{wanted}': " + " | ".join(self.errors[-8:]))

    def end(self):
        self.child.kill()
        self.child.wait()
        self.watchdog.cancel()
