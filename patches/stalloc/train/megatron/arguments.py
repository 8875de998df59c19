"""The STALLOC_* variables as arguments of a Megatron script: `--stalloc-mode Trace` for STALLOC_MODE=Trace, and so on.

The allocator is in place before Megatron parses anything, so the arguments are read from the command line when
`stalloc.megatron` is imported, and put into the environment. `add_arguments` makes Megatron's own parser know them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, Optional

from stalloc.core import log
from stalloc.core.variables import SWITCH, VARIABLES
from stalloc.train import session


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """An `extra_args_provider`, or a part of one: adds the arguments and returns the parser."""
    group = parser.add_argument_group("stalloc")
    for name, variable in VARIABLES.items():
        switch: dict[str, Any] = {"nargs": "?", "const": "1"} if variable.choices == SWITCH else {}
        group.add_argument(
            _option(name),
            choices=variable.choices,
            default=os.environ.get(name),
            action=_Checked,
            help=f"{variable.meaning} ({name})",
            **switch,
        )
    return parser


def read_command_line(words: Sequence[str]) -> None:
    """Puts the arguments among `words` into the environment.

    Once the allocator is in place they say nothing new; `add_arguments` warns where they contradict it.
    """
    if session.current is not None or not any(word.startswith("--stalloc-") for word in words):
        return
    parser = add_arguments(argparse.ArgumentParser(add_help=False, allow_abbrev=False))
    given, _ = parser.parse_known_args(list(words))
    for variable in VARIABLES:
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
        if session.current is not None and values != active:
            log.warning(
                f"{option} {values} came too late, the allocator is in place with {active or 'the default'}: "
                "import stalloc.megatron first, or set the variable"
            )
