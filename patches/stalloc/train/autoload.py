"""Whether an import activates stalloc. What that takes is loaded only where a STALLOC_ variable is set."""

from __future__ import annotations

import importlib
import os
from typing import Any

from stalloc.train import imports, process


def at_import() -> None:
    """In `import stalloc`, which may be inside of `import torch`."""
    if imports.being_imported("torch"):
        activate()
    elif _is_requested() and process.trains():
        _activation().activate_now()


def activate() -> None:
    """At the end of `import torch`: the entry point. Raises what activation.activate does."""
    if _is_requested():
        _activation().activate()


def _is_requested() -> bool:
    """Whether a mode or a report is requested; activation warns of names that nothing reads."""
    return any(name.startswith("STALLOC_") for name in os.environ)


def _activation() -> Any:
    return importlib.import_module("stalloc.train.activation")
