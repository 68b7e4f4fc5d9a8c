"""Programs of client libraries, built in copies of their folders so that the sources stay clean."""

import os
import shutil
import subprocess
import sys

SUITES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def copied(language, source="clients"):
    folder = os.path.join(os.environ["SUITE_DIR"], language)
    shutil.copytree(os.path.join(SUITES, source, language), folder, dirs_exist_ok=True)
    return folder


def run(folder, *command):
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)


def python(folder, program="main.py"):
    return [sys.executable, os.path.join(folder, program)]


def node(folder, program="main.mjs"):
    run(folder, "npm", "ci", "--no-audit", "--no-fund", "--silent")
    return ["node", os.path.join(folder, program)]


def go(folder):
    run(folder, "go", "build", "-mod=readonly", "-o", "example", ".")
    return [os.path.join(folder, "example")]


def java(folder):
    run(folder, "mvn", "--quiet", "--batch-mode", "package")
    classes = os.path.join(folder, "target", "lib", "*") + ":" + os.path.join(folder, "target", "classes")
    return ["java", "-cp", classes, "example.Main"]


LANGUAGES = {"python": python, "node": node, "go": go, "java": java}


def built(source, language):
    """The command of the program in `tools/suites/SOURCE/LANGUAGE`."""
    return LANGUAGES[language](copied(language, source))
