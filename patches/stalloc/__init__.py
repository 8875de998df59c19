"""stalloc: plans the memory of a training run from a trace of its first iterations.

With STALLOC_MODE set (Torch, Auto, Trace or Alloc), `import stalloc` as a script's first line puts the allocator in
place; so do `stalloc run SCRIPT` and, where the package is installed, `import torch` alone. Without it nothing happens,
and marks cost nothing.

    for step, batch in enumerate(batches):
        stalloc.iteration(step)
        ...
        with stalloc.fence("eval"):
            evaluate(model)

Marks may be plain calls (a beginning) or context managers (beginning and end). A script without any is cut at the steps
of its optimizer. Marks belong on the thread that runs the training loop. In what torch.compile compiles there are none:
a mark there does nothing, and the graph stays whole.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stalloc.core.version import __version__
from stalloc.train import autoload as _autoload
from stalloc.train.api import (
    fence,
    flush,
    installed,
    iteration,
    layer,
    microbatch,
    mode,
    optimizer,
    stats,
    stop,
    tokens,
)

if TYPE_CHECKING:
    from stalloc.train.calls import (
        apply,
        auto,
        fake_trace,
        outside,
        recompute,
        region,
        release_host_memory,
        reserve_host_memory,
        serve_sleep,
        sleep,
        wake,
    )

__all__ = [
    "__version__",
    "apply",
    "auto",
    "fake_trace",
    "fence",
    "flush",
    "installed",
    "iteration",
    "layer",
    "microbatch",
    "mode",
    "optimizer",
    "outside",
    "recompute",
    "region",
    "release_host_memory",
    "reserve_host_memory",
    "serve_sleep",
    "sleep",
    "stats",
    "stop",
    "tokens",
    "trace",
    "wake",
]


_autoload.at_import()


def __getattr__(name: str) -> Any:
    """What is loaded by its first use: `stalloc.trace`, and all that is no mark."""
    if name == "trace":
        return importlib.import_module("stalloc.trace")
    if name not in __all__:
        raise AttributeError(f"module 'stalloc' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module("stalloc.train.calls"), name)
    return found
