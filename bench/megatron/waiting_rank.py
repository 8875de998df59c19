"""A rank that imports what takes long, and waits for what it shall run.

    python waiting_rank.py LOG MODULE...

Writes "ready" to its standard output when MODULE... are imported, and reads one line of JSON from its standard input:
`script`, `arguments` and `environment`, what is to be set in addition. It then is that script; all it prints goes to
LOG. It ends without a word where the input ends before, and is killed where the process that started it ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, sys.stderr.fileno())
    for module in sys.argv[2:]:
        importlib.import_module(module)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    os.dup2(log, sys.stdout.fileno())
    order = json.loads(line)
    os.environ.update(order["environment"])
    sys.argv = [order["script"], *order["arguments"]]
    sys.path[0] = os.path.dirname(order["script"])
    runpy.run_path(order["script"], run_name="__main__")


if __name__ == "__main__":
    main()
