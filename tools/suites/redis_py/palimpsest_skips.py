"""A pytest plugin: leaves out the tests that a file in compat/ names, each with its reason.

COMPAT_SKIPS names the file. COMPAT_SHORT=1 keeps a part of the tests that is the same in each run.
"""

import fnmatch
import os
import tomllib
import zlib

SHORT_OF = 2


def pytest_collection_modifyitems(config, items):
    with open(os.environ["COMPAT_SKIPS"], "rb") as file:
        groups = tomllib.load(file)["skip"]
    kept, left_out, used = [], [], set()
    for item in items:
        name = item.nodeid
        found = next((group for group in groups if fnmatch.fnmatchcase(name, group)), None)
        if found is not None:
            used.add(found)
            left_out.append(item)
        elif os.environ.get("COMPAT_SHORT") and zlib.crc32(name.encode()) % SHORT_OF:
            left_out.append(item)
        else:
            kept.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
    if not os.environ.get("COMPAT_SHORT"):
        for group in sorted(set(groups) - used):
            print(f"no test is called {group}")
