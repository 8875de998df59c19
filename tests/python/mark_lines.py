"""The fake library's calls of stalloc_mark, readable: `iteration 3`, `F 1 chunk 2`, `fence eval`; ends with a slash."""

from __future__ import annotations

_KINDS = {1: "init", 2: "iteration", 3: "microbatch", 4: "optimizer", 5: "layer", 6: "fence"}
_PASSES = {1: "F", 2: "B", 3: "W", 4: "FB", 5: "O"}


def readable(calls: list[str], ends: bool = False) -> list[str]:
    """The marks among the calls, in order; those that end something only if asked for."""
    marks = [call.split() for call in calls if call.startswith("mark ")]
    return [_one(mark) for mark in marks if ends or mark[2] == "1"]


def _one(words: list[str]) -> str:
    kind, edge, passes, chunk, index = (int(word) for word in words[1:6])
    name, automatic = words[6], words[7] == "1"
    if kind == 3:
        text = f"{_PASSES[passes]} {index}" + (f" chunk {chunk}" if chunk else "")
    elif kind == 5:
        text = f"{name} {_PASSES[passes]}"
    else:
        text = _KINDS[kind] + (f" {index}" if kind == 2 else f" {name}" if kind == 6 else "")
    return ("/" if edge == 2 else "") + text + (" automatic" if automatic else "")
