"""The STALLOC_* variables as arguments of a Megatron script: `--stalloc-mode Trace` for STALLOC_MODE=Trace, and so on.

The allocator is in place before Megatron parses anything, so the arguments are read from the command line when
`stalloc.megatron` is imported, and put into the environment. `add_arguments` makes Megatron's own parser know them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, Optional

from stalloc import _log, _session

# Variable: what it takes (None: any text), and its meaning. A switch is 1 where the argument stands alone.
_SWITCH = ("0", "1")
_VARIABLES: dict[str, tuple[Optional[tuple[str, ...]], str]] = {
    "STALLOC_MODE": (None, "Torch, Trace or Alloc"),
    "STALLOC_MODEL_INFO_PATH": (None, "directory of traces and plans"),
    "STALLOC_LIB_PATH": (None, "directory of the libraries"),
    "STALLOC_TRACE_FAST_MODE": (_SWITCH, "trace over PyTorch's allocator, at full speed"),
    "STALLOC_TRACE_STEPS": (None, "iterations after which the trace ends, or a window: 2:5"),
    "STALLOC_TRACE_RANKS": (None, "ranks that are traced: 0,3"),
    "STALLOC_TRACE_MAX_EVENTS": (None, "events after which the trace ends"),
    "STALLOC_TRACE_FAKE": (_SWITCH, "the trace is of fake tensors: no device is touched"),
    "STALLOC_FAKE_ASSUME": (None, "values that fake tensors lack: int=4096,bool=0,nonzero=1/16"),
    "STALLOC_TRACE_NAMES": (_SWITCH, "traces name parameters, gradients and optimizer state"),
    "STALLOC_TRACE_STACKS": (None, "Python stacks: 0, 1, every Nth request, or a least size as 64K"),
    "STALLOC_TRACE_USES": (_SWITCH, "traces know which operations use which blocks"),
    "STALLOC_LOG_STEPS": (None, "a line of figures every so many iterations"),
    "STALLOC_TENSORBOARD": (None, "directory of TensorBoard scalars"),
    "STALLOC_TRACE_MODULES": (_SWITCH, "traces name the module of each block"),
    "STALLOC_NVTX": (_SWITCH, "marks are NVTX ranges, too"),
    "STALLOC_DYNAMIC": (("0", "1", "auto"), "whether what has no slot is served from the arena"),
    "STALLOC_PLAN_RANK": (None, "whose plan this rank is served from, if not its own"),
    "STALLOC_STATIC_FALLBACK": (_SWITCH, "accepted; falling back is always on"),
    "STALLOC_LOG_LEVEL": (("0", "1", "2", "3"), "smaller is more"),
    "STALLOC_STRICT": (_SWITCH, "a missing or foreign plan is an error"),
    "STALLOC_DEVICE": (("auto", "cuda", "cpu"), "which of torch's allocators is replaced"),
    "STALLOC_MEMORY_LIMIT": (None, "bytes, 40G: caps an exact trace's memory"),
    "STALLOC_WATCH": (_SWITCH, "writes beyond the end of blocks and into freed ones are looked for"),
    "STALLOC_OOM_REPORT": (None, "directory of reports on out-of-memory errors"),
}


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """An `extra_args_provider`, or a part of one: adds the arguments and returns the parser."""
    group = parser.add_argument_group("stalloc")
    for variable, (choices, meaning) in _VARIABLES.items():
        switch: dict[str, Any] = {"nargs": "?", "const": "1"} if choices == _SWITCH else {}
        group.add_argument(
            _option(variable),
            choices=choices,
            default=os.environ.get(variable),
            action=_Checked,
            help=f"{meaning} ({variable})",
            **switch,
        )
    return parser


def read_command_line(words: Sequence[str]) -> None:
    """Puts the arguments among `words` into the environment.

    Once the allocator is in place they say nothing new; `add_arguments` warns where they contradict it.
    """
    if _session.current is not None or not any(word.startswith("--stalloc-") for word in words):
        return
    parser = add_arguments(argparse.ArgumentParser(add_help=False, allow_abbrev=False))
    given, _ = parser.parse_known_args(list(words))
    for variable in _VARIABLES:
        value = getattr(given, _option(variable)[2:].replace("-", "_"))
        if value is not None:
            os.environ[variable] = value


def _option(variable: str) -> str:
    return "--" + variable.lower().replace("_", "-")


class _Checked(argparse.Action):
    """Stores the value; a warning where the run is under way with another."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Optional[str] = None
    ) -> None:
        setattr(namespace, self.dest, values)
        active = os.environ.get(self.dest.upper())
        if _session.current is not None and values != active:
            _log.warning(
                f"{option} {values} came too late, the allocator is in place with {active or 'the default'}: "
                "import stalloc.megatron first, or set the variable"
            )
