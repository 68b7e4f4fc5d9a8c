"""Results of a library's own tests: the share that passes, and where it is noted."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SHARES = os.path.join(ROOT, "compat", "shares.toml")


def skips(name):
    return os.path.join(ROOT, "compat", f"skip-{name}.toml")


def note(suite, passed, failed):
    """Writes the counts of a whole run to compat/shares.toml, with UPDATE=1."""
    if os.environ.get("UPDATE") != "1":
        return
    line = f'"{suite}" = {{ passed = {passed}, failed = {failed} }}\n'
    lines = []
    if os.path.exists(SHARES):
        with open(SHARES, encoding="utf-8") as file:
            lines = file.readlines()
    kept = [it for it in lines if not it.startswith(f'"{suite}" ')]
    heads = [it for it in kept if not re.match(r'"', it)]
    shares = sorted([it for it in kept if re.match(r'"', it)] + [line])
    with open(SHARES, "w", encoding="utf-8") as file:
        file.writelines(heads + shares)


def share(passed, failed):
    return f"{100 * passed / max(1, passed + failed):.1f} %"
