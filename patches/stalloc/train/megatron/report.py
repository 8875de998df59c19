"""Megatron's report_memory with our figures below torch's."""

from __future__ import annotations

import sys
from typing import Any

from stalloc.core import log, outcome
from stalloc.train import session as _session
from stalloc.train.patching import Function, argument

_MEGABYTE = 1024.0 * 1024.0


def memory_report(original: Function) -> Function:
    """Prints report_memory. With a plain pluggable allocator torch has no figures: then only ours are printed."""
    name_of, group_of = argument(original, "name"), argument(original, "process_group")
    warned = False

    def report_memory(*args: Any, **kwargs: Any) -> Any:
        nonlocal warned
        result = None
        try:
            result = original(*args, **kwargs)
        except RuntimeError as error:
            if "does not yet support" not in str(error):
                raise
            if not warned:
                log.warning(f"report_memory has no figures of torch's: {error}")
            warned = True
        if _is_first_replica(group_of(args, kwargs)):
            for line in _lines(str(name_of(args, kwargs))):
                print(line, flush=True)
        return result

    return report_memory


def _lines(name: str) -> list[str]:
    session = _session.current
    if session is None or session.library is None:
        return []
    return [_line(name, device) for device in session.stats().get("devices", [])]


def _line(name: str, device: dict[str, Any]) -> str:
    figures = {
        "live": device.get("live_bytes", 0),
        "max live": device.get("peak_live_bytes", 0),
        "arena": device.get("arena_bytes", 0),
        "max held": device.get("held_peak_bytes", 0),
    }
    sizes = "".join(f" | {what}: {count / _MEGABYTE:.2f}" for what, count in figures.items())
    return f"[Rank {log.rank()}] {name} stalloc memory (MB){sizes} | planned: {outcome.planned(device)}"


def _is_first_replica(group: Any) -> bool:
    """Megatron prints on the first data-parallel rank only."""
    try:
        if group is not None:
            return bool(group.rank() == 0)
        return bool(sys.modules["megatron.core.parallel_state"].get_data_parallel_rank() == 0)
    except (KeyError, AssertionError, AttributeError, RuntimeError):
        return True
