"""What a planner that failed said, of all that it printed: progress and errors, and at the end a JSON object."""

from __future__ import annotations

import json
from typing import Any


def why_it_failed(text: str) -> str:
    """One line: the error of its ranks, or the last line that speaks of one, or the last at all."""
    printed, brace, rest = text.partition("\n{\n") if not text.startswith("{\n") else ("", "{", text[1:])
    errors = _errors(f"{{{rest}") if brace else []
    if errors:
        return errors[0]
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    said = [line for line in lines if "error" in line] or lines or ["it said nothing"]
    return said[-1]


def _errors(document: str) -> list[str]:
    try:
        found: Any = json.loads(document)
        return [str(rank["error"]) for rank in found["ranks"] if rank["error"]]
    except (ValueError, KeyError, TypeError):  # it was ended while it wrote
        return []
