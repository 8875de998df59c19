"""The facts that checks read, in one place, so that tests can supply another machine; and what a check finds."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import nvml

OK, WARNING, FAILURE = "ok", "warning", "failure"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fact. A failure keeps something that stalloc is for from working here; a warning, some of it."""

    subject: str
    status: str
    fact: str
    advice: str = ""  # what to do, where not all is well


def ok(subject: str, fact: str) -> Finding:
    return Finding(subject, OK, fact)


def warning(subject: str, fact: str, advice: str) -> Finding:
    return Finding(subject, WARNING, fact, advice)


def failure(subject: str, fact: str, advice: str) -> Finding:
    return Finding(subject, FAILURE, fact, advice)


def _load_cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@dataclasses.dataclass
class Machine:
    """This one, by default.

    Attributes:
        root: where /proc, /sys and /dev are.
        cuda: loads the CUDA driver's library; OSError where there is none.
        card: what NVIDIA's management library says of the memory of the GPU at a PCI address; None: nothing.
        torch: the module, or None with `torch_error`.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)
    cuda: Callable[[], Any] = _load_cuda
    card: Callable[[str], Optional[nvml.CardMemory]] = nvml.memory
    torch: Optional[Any] = None
    torch_error: str = ""

    def read(self, path: str) -> Optional[str]:
        """The text of a file of the system, stripped; None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None
