"""Python packages of a suite, in an environment of its own."""

import os
import subprocess
import sys
import venv


def installed(folder, requirements):
    """The interpreter of an environment in `folder` that has the packages of a file."""
    python = os.path.join(folder, "venv", "bin", "python")
    done = os.path.join(folder, "venv", "installed")
    with open(requirements, encoding="utf-8") as file:
        text = file.read()
    if not os.path.exists(done) or open(done, encoding="utf-8").read() != text:
        venv.create(os.path.join(folder, "venv"), with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with open(done, "w", encoding="utf-8") as file:
            file.write(text)
    return python
