"""Stacks without stalloc's own calls: a user reads the program's, and what stalloc puts around it explains nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

# As IsOwn of planner/report/call_sites.cc. Files of the installed package, on whatever machine the trace was made.
# `_`, `megatron/` and the second launcher: of traces that 0.2.0 and earlier wrote.
_OWN = re.compile(r"/stalloc/(?:core/|train/|_|frameworks/|megatron/|(?:cli|compat|megatron|trace)\.py$)")
# It calls the program: what is outside of it starts python and stalloc.
_LAUNCHERS = ("/stalloc/train/runner.py", "/stalloc/_runner.py")


def without_own_calls(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A dump's lines (`stalloc-planner dump --json`), each stack without these calls. Calls keep their numbers."""
    stands_for = {0: 0}  # a call: the innermost one of its stack that stays
    for line in lines:
        if line["event"] == "call":
            outer = stands_for[line["parent"]]
            if _OWN.search(line["file"]):
                stands_for[line["id"]] = 0 if line["file"].endswith(_LAUNCHERS) else outer
                continue
            stands_for[line["id"]] = line["id"]
            yield line | {"parent": outer}
        elif line.get("stack"):
            yield line | {"stack": stands_for[line["stack"]]}
        else:
            yield line
