"""Megatron's arguments as it settled them, written next to a trace, so that the estimate of a report knows the model.

A command line is not enough: defaults, checkpoints, YAML files and tokenizers decide as well.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from pathlib import Path
from typing import Any

from stalloc.core import config, files, log, megatron_arguments
from stalloc.train import session as _session


def note_arguments() -> None:
    """At the first step, while tracing. Whatever is wrong here costs a warning, not the run."""
    session, directory = _session.current, os.environ.get("STALLOC_MODEL_INFO_PATH")
    if session is None or session.mode != config.TRACE or not directory:
        return
    try:
        given = _given(sys.modules.get("megatron.training.global_vars"))
        if given is not None:
            trace = Path(directory) / "trace" / f"rank{int(log.rank()):05d}.trace"
            files.write_whole(megatron_arguments.arguments_of(trace), json.dumps(_settled(given)).encode())
    except (OSError, TypeError, ValueError) as error:
        log.warning(f"the arguments of this run could not be noted: {error}")


def _given(variables: Any) -> Any:
    """Megatron's namespace; None where a loop of one's own has none."""
    try:
        return None if variables is None else variables.get_args()
    except AssertionError:
        return None


def _settled(given: Any) -> dict[str, Any]:
    known = {name: getattr(given, name) for name in megatron_arguments.argument_names() if hasattr(given, name)}
    return {name: value.name if isinstance(value, enum.Enum) else value for name, value in known.items()}
