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
of its optimizer. Marks belong on the thread that runs the training loop.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Optional, SupportsIndex, Union

from stalloc import _autoload, _fake_trace, _install, _session
from stalloc._core import _imports, _process
from stalloc._core._version import __version__
from stalloc._marking._marks import NO_MARK, NoMark, check_pass

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
    "stats",
    "stop",
    "tokens",
    "trace",
]


def auto(directory: Union[str, os.PathLike[str], None] = None) -> None:
    """Does in code what STALLOC_MODE=Auto does: the run traces its first iterations and takes a plan up by itself.

    Call it before anything is on the GPU. A mode that the environment sets stands, and this does nothing then.

    Args:
        directory: where the plan is kept for the next start, as STALLOC_MODEL_INFO_PATH; default: the user's cache.
    Raises:
        RuntimeError: CUDA is initialised already, or the allocator could not be put in place.
    """
    _install.activate_auto(directory)


def apply(choice: Union[str, os.PathLike[str]], model: Any, optimizer: Optional[Any] = None) -> list[str]:
    """Does to a model what `stalloc fit --output fit.json` chose: recomputes and offloads exactly those modules.

        model = Model()
        stalloc.apply("fit.json", model)     # before it is compiled or sharded

    Args:
        choice: the file.
        model: a torch.nn.Module with the modules of the traced one.
        optimizer: where the choice offloads the optimizer's state.
    Returns:
        The paths of the modules that were changed.
    Raises:
        ValueError: the file is no choice, or the model has no such module; nothing was changed then.
        OSError: the file cannot be read.
    """
    from stalloc.fitting import applied

    return applied.apply(choice, model, optimizer)


def iteration(index: Optional[int] = None) -> NoMark:
    """Begins an iteration; `index` as the loop counts it, or one more than the last. Turns automatic iterations off."""
    session = _session.current
    return NO_MARK if session is None else session.marker.iteration(index)


def microbatch(kind: str, index: Optional[int] = None, chunk: int = 0) -> NoMark:
    """Begins a pass of one micro-batch through one model chunk.

    Args:
        kind: "F" forward, "B" backward, "W" the weight half of a split backward, "FB" both merged, "O" other.
        index: which micro-batch of the iteration; by default counted per kind and chunk.
        chunk: the model chunk (virtual pipeline stage).
    """
    session = _session.current
    check_pass(kind)
    return NO_MARK if session is None else session.marker.microbatch(kind, index, chunk)


def layer(name: str, kind: str = "F") -> NoMark:
    """Begins a layer, or a step in one, whose sizes depend on the data."""
    session = _session.current
    check_pass(kind)
    return NO_MARK if session is None else session.marker.layer(name, kind)


def optimizer() -> NoMark:
    """Begins the optimizer's part of an iteration."""
    session = _session.current
    return NO_MARK if session is None else session.marker.optimizer()


def fence(kind: str) -> NoMark:
    """Begins something that is not part of the steady loop: "eval", "save", … Use it as a context manager."""
    session = _session.current
    return NO_MARK if session is None else session.marker.fence(kind)


def tokens(count: SupportsIndex) -> None:
    """Tells how many tokens the present micro-batch of training has (padding included), where lengths vary.

    A traced run needs it, once for each micro-batch, so that `stalloc plan --max-tokens N` can plan for longer ones.
    Elsewhere it does nothing. Give it a plain number: one on the GPU would have to be waited for.
    """
    session = _session.current
    if session is not None and session.tracing is not None:
        session.tracing.tokens(count)


def fake_trace(
    directory: Union[str, os.PathLike[str]], device: str = "cuda", assume: str = ""
) -> AbstractContextManager[Path]:
    """A trace without a device and without its memory: inside, tensors of `device` are torch's fake ones.

        with stalloc.fake_trace("run1") as trace:
            model = Model().cuda()
            for batch in batches: ...        # then: stalloc plan run1; stalloc report run1

    What is made inside must stay inside. One trace a process. Gives the trace's path.

    Args:
        directory: of the run, as STALLOC_MODEL_INFO_PATH.
        device: "cuda", or "cpu": whose tensors are fake.
        assume: values that the program reads from fake tensors, as in "int=4096,bool=0,nonzero=1/16".
    Raises:
        RuntimeError: stalloc is active already; or, from inside, an operator that a fake tensor cannot go through.
        ValueError: a device or an assumption that is not allowed.
    """
    return _fake_trace.fake_trace(directory, device, assume)


def stats() -> dict[str, Any]:
    """The allocator's figures, per device; no devices where it is not in place."""
    session = _session.current
    return {"mode": None, "degraded": None, "devices": []} if session is None else session.stats()


def flush() -> None:
    """Hands every event so far to the trace file, and writes the summary."""
    session = _session.current
    if session is not None:
        session.flush()


def stop() -> None:
    """Ends the trace in order; the run goes on and is not recorded any more. Nothing where there is no trace."""
    session = _session.current
    if session is not None:
        session.stop()


def mode() -> Optional[str]:
    """Torch, Trace, Alloc or Auto; None where stalloc is not active in this process."""
    session = _session.current
    return None if session is None else session.mode


def installed() -> bool:
    """True where stalloc's allocator serves this process (Trace and Alloc)."""
    session = _session.current
    return session is not None and session.library is not None


if _imports.being_imported("torch"):
    _autoload.activate()
elif _process.trains():
    _autoload.activate_now()


def __getattr__(name: str) -> Any:
    """`stalloc.trace` after `import stalloc` alone."""
    if name == "trace":
        return importlib.import_module("stalloc.trace")
    raise AttributeError(f"module 'stalloc' has no attribute {name!r}")
