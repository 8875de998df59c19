"""The settings of the Python side in the environment. The C++ side reads the rest of STALLOC_* by itself."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Optional

TORCH, TRACE, ALLOC, AUTO = "Torch", "Trace", "Alloc", "Auto"
MODES = (TORCH, TRACE, ALLOC, AUTO)
DEVICES = ("auto", "cuda", "cpu")

LOG_LEVELS = ("debug", "info", "warning", "error", "off")  # each prints what those after it do
LOG_LEVEL = "STALLOC_LOG_LEVEL"
_LOG_NUMBERS = {"0": "debug", "1": "debug", "2": "debug", "3": "info"}  # the published tool's

# First that is set names this process's rank; the C++ side looks in the same order. The last: see started.py.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "STALLOC_STARTED_RANK")


class ConfigError(ValueError):
    """A variable has a value that is not allowed; the text names both."""


def _one_of(variable: str, value: str, allowed: tuple[str, ...]) -> str:
    for candidate in allowed:
        if candidate.lower() == value.lower():
            return candidate
    raise ConfigError(f"{variable} must be one of {', '.join(allowed)}: {value!r}")


def parse_mode(value: str) -> str:
    """Returns the mode in its usual spelling; ConfigError for anything but Torch, Trace, Alloc and Auto."""
    return _one_of("STALLOC_MODE", value, MODES)


def rank_text(environ: Mapping[str, str]) -> str:
    """The rank as the launcher wrote it, or "" outside of one."""
    return next((environ[name] for name in _RANK_VARIABLES if environ.get(name)), "")


@dataclasses.dataclass(frozen=True)
class TraceSteps:
    """The iterations that a trace holds, counted from 0 as they come, whatever numbers the loop gives them."""

    first: int = 0
    end: Optional[int] = None  # without it; None: with the run, or when it is stopped
    manual: bool = False  # begins when stalloc.trace.start() is called

    @property
    def waits(self) -> bool:
        """True where there are requests before the trace."""
        return self.manual or self.first > 0


@dataclasses.dataclass(frozen=True)
class Config:
    """One process's settings. `mode` is None where STALLOC_MODE is unset: stalloc does nothing then."""

    mode: Optional[str] = None
    device: str = "auto"
    strict: bool = False
    log_level: str = "info"
    rank: str = ""
    trace_modules: bool = False
    trace_times: bool = False
    trace_names: bool = True
    trace_steps: TraceSteps = TraceSteps()
    traced: bool = True  # this rank is in STALLOC_TRACE_RANKS
    trace_fake: bool = False  # of fake tensors: no device is touched
    fake_assume: str = ""  # values that a fake run does not have: train/fake/unknown.py
    auto_wait: bool = False  # mode Auto waits for its plan: the same iteration takes it up in every start
    nvtx: bool = False
    log_steps: Optional[int] = (
        None  # a line of figures after every so many iterations, 0: none; None: as the mode has it
    )
    tensorboard: str = ""  # directory of the scalars
    fit: str = ""  # the file of `stalloc run --fit` for this process: core/fit_files.py
    sleep_socket: str = ""  # "1": orders to sleep are taken, between iterations; "once": at once


# The same as in allocator/runtime/trace_config.h.
_STEPS = re.compile(r"(?P<count>\d+)|(?P<first>\d+):(?P<end>\d*)|(?P<manual>manual)")
_STEPS_ALLOWED = "N (the first N iterations), FIRST:END (counted from 0, without END), FIRST: or manual"
_RANKS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def parse_steps(value: str) -> TraceSteps:
    """STALLOC_TRACE_STEPS; ConfigError names what is allowed."""
    if not value:
        return TraceSteps()
    match = _STEPS.fullmatch(value)
    steps = TraceSteps()
    if match is not None and match["count"]:
        steps = TraceSteps(end=int(match["count"]))
    elif match is not None:
        end = int(match["end"]) if match["end"] else None
        steps = TraceSteps(int(match["first"] or 0), end, manual=match["manual"] is not None)
    if match is None or (steps.end is not None and steps.end <= steps.first):
        raise ConfigError(f"STALLOC_TRACE_STEPS must be {_STEPS_ALLOWED}: {value!r}")
    return steps


def lists_rank(value: str, rank: str) -> bool:
    """STALLOC_TRACE_RANKS: whether this rank is traced; ConfigError where it is no list of ranks."""
    if not value:
        return True
    ranges = (
        [tuple(int(end) for end in item.split("-")) for item in value.split(",")] if _RANKS.fullmatch(value) else []
    )
    if not ranges or any(item[0] > item[-1] for item in ranges):
        raise ConfigError(f"STALLOC_TRACE_RANKS must be ranks and ranges of ranks, such as 0,3,8-15: {value!r}")
    return any(item[0] <= int(rank or 0) <= item[-1] for item in ranges)


def _switch(variable: str, value: str) -> bool:
    if value not in ("", "0", "1"):
        raise ConfigError(f"{variable} must be 0 or 1: {value!r}")
    return value == "1"


def _sleep_socket(value: str) -> str:
    if value not in ("", "0", "1", "once"):
        raise ValueError(f"STALLOC_SLEEP_SOCKET must be 0, 1 or once: {value!r}")
    return "" if value == "0" else value


def _log_steps(value: str) -> Optional[int]:
    if value and not value.isdecimal():
        raise ConfigError(f"STALLOC_LOG_STEPS must be a number of iterations, 0 for no line: {value!r}")
    return int(value) if value else None


def parse_log_level(value: str) -> str:
    """One of LOG_LEVELS; "info" for an empty text. ConfigError for anything but these and the numbers 0 to 3."""
    try:
        return _LOG_NUMBERS.get(value) or _one_of(LOG_LEVEL, value or "info", LOG_LEVELS)
    except ConfigError:
        raise ConfigError(f"{LOG_LEVEL} must be one of {', '.join(LOG_LEVELS)}, or 0 to 3: {value!r}") from None


# What STALLOC_TRACE_DETAIL=1 stands for, where a variable does not say otherwise itself.
_DETAIL = {"STALLOC_TRACE_MODULES": "1", "STALLOC_TRACE_STACKS": "1", "STALLOC_TRACE_USES": "1"}


def detail_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What STALLOC_TRACE_DETAIL=1 adds to a traced run: modules, stacks and uses. ConfigError: it is no switch."""
    wanted = _switch("STALLOC_TRACE_DETAIL", environ.get("STALLOC_TRACE_DETAIL", ""))
    if not wanted or not environ.get("STALLOC_MODE") or parse_mode(environ["STALLOC_MODE"]) != TRACE:
        return {}
    fake = environ.get("STALLOC_TRACE_FAKE") == "1"  # operations on fake tensors use no block
    left_out = ("STALLOC_TRACE_USES",) if fake else ()
    return {name: value for name, value in _DETAIL.items() if not environ.get(name) and name not in left_out}


def read_config(environ: Optional[Mapping[str, str]] = None) -> Config:
    """Reads the environment. Without a mode nothing else is looked at.

    Raises:
        ConfigError: a variable has a value that is not allowed.
    """
    variables = os.environ if environ is None else environ
    if not variables.get("STALLOC_MODE"):
        return Config()
    return Config(
        mode=parse_mode(variables["STALLOC_MODE"]),
        device=_one_of("STALLOC_DEVICE", variables.get("STALLOC_DEVICE") or "auto", DEVICES),
        strict=variables.get("STALLOC_STRICT", "") == "1",
        log_level=parse_log_level(variables.get(LOG_LEVEL, "")),
        rank=rank_text(variables),
        trace_modules=_switch("STALLOC_TRACE_MODULES", variables.get("STALLOC_TRACE_MODULES", "")),
        trace_times=_switch("STALLOC_TRACE_TIMES", variables.get("STALLOC_TRACE_TIMES", "")),
        trace_names=variables.get("STALLOC_TRACE_NAMES", "") == ""
        or _switch("STALLOC_TRACE_NAMES", variables["STALLOC_TRACE_NAMES"]),
        trace_steps=parse_steps(variables.get("STALLOC_TRACE_STEPS", "")),
        traced=lists_rank(variables.get("STALLOC_TRACE_RANKS", ""), rank_text(variables)),
        trace_fake=_switch("STALLOC_TRACE_FAKE", variables.get("STALLOC_TRACE_FAKE", "")),
        fake_assume=variables.get("STALLOC_FAKE_ASSUME", ""),
        auto_wait=_switch("STALLOC_AUTO_WAIT", variables.get("STALLOC_AUTO_WAIT", "")),
        nvtx=_switch("STALLOC_NVTX", variables.get("STALLOC_NVTX", "")),
        log_steps=_log_steps(variables.get("STALLOC_LOG_STEPS", "")),
        tensorboard=variables.get("STALLOC_TENSORBOARD", ""),
        fit=variables.get("STALLOC_FIT", ""),
        sleep_socket=_sleep_socket(variables.get("STALLOC_SLEEP_SOCKET", "")),
    )
