"""What the environment asks of the Python side. The C++ side reads the rest of STALLOC_* by itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Optional

TORCH, TRACE, ALLOC = "Torch", "Trace", "Alloc"
MODES = (TORCH, TRACE, ALLOC)
DEVICES = ("auto", "cuda", "cpu")

# First that is set names this process's rank; the C++ side looks in the same order.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")


def _one_of(variable: str, value: str, allowed: tuple[str, ...]) -> str:
    for candidate in allowed:
        if candidate.lower() == value.lower():
            return candidate
    raise ValueError(f"{variable} must be one of {', '.join(allowed)}: {value!r}")


def parse_mode(value: str) -> str:
    """Returns the mode in its usual spelling; ValueError for anything but Torch, Trace and Alloc."""
    return _one_of("STALLOC_MODE", value, MODES)


def rank_text(environ: Mapping[str, str]) -> str:
    """The rank as the launcher wrote it, or "" outside of one."""
    return next((environ[name] for name in _RANK_VARIABLES if environ.get(name)), "")


@dataclasses.dataclass(frozen=True)
class Config:
    """One process's settings. `mode` is None where STALLOC_MODE is unset: stalloc does nothing then."""

    mode: Optional[str] = None
    device: str = "auto"
    strict: bool = False
    log_level: int = 3
    rank: str = ""
    trace_modules: bool = False
    trace_steps: int = 0  # the trace ends after so many iterations; 0: with the run
    nvtx: bool = False


def _steps(value: str) -> int:
    if not value:
        return 0
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"STALLOC_TRACE_STEPS must be a number of iterations, 1 or more: {value!r}")
    return int(value)


def _switch(variable: str, value: str) -> bool:
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable} must be 0 or 1: {value!r}")
    return value == "1"


def _log_level(value: str) -> int:
    if value not in ("0", "1", "2", "3"):
        raise ValueError(f"STALLOC_LOG_LEVEL must be 0, 1, 2 or 3: {value!r}")
    return int(value)


def read_config(environ: Optional[Mapping[str, str]] = None) -> Config:
    """Reads the environment. Without a mode nothing else is looked at.

    Raises:
        ValueError: a variable has a value that is not allowed; the text names both.
    """
    variables = os.environ if environ is None else environ
    if not variables.get("STALLOC_MODE"):
        return Config()
    return Config(
        mode=parse_mode(variables["STALLOC_MODE"]),
        device=_one_of("STALLOC_DEVICE", variables.get("STALLOC_DEVICE") or "auto", DEVICES),
        strict=variables.get("STALLOC_STRICT", "") == "1",
        log_level=_log_level(variables.get("STALLOC_LOG_LEVEL") or "3"),
        rank=rank_text(variables),
        trace_modules=_switch("STALLOC_TRACE_MODULES", variables.get("STALLOC_TRACE_MODULES", "")),
        trace_steps=_steps(variables.get("STALLOC_TRACE_STEPS", "")),
        nvtx=_switch("STALLOC_NVTX", variables.get("STALLOC_NVTX", "")),
    )
