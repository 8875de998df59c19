"""Every warning and error that a user can see, as the sources have it: for the test of the page that explains them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from processes import ROOT

_STRING = r'"(?:[^"\\]|\\.)*"'
_LOGGED = re.compile(rf"\bLog(?:Fatal\(|\(LogSeverity::k(?:Warning|Error),)\s*((?:{_STRING}\s*)+)")
_PLANNED = re.compile(
    rf"(?:warnings\.(?:push_back|emplace_back)\(\s*(?:absl::StrCat\()?|kVariesWithoutPasses =)\s*((?:{_STRING}\s*)+)"
)
_FORMAT = re.compile(r"%[-\d.*]*(?:hh|h|ll|l|z)?[a-zA-Z]")


def fragments() -> dict[str, str]:
    """The longest part of each message that is always the same, by where it is."""
    found = {**_of_package(), **_of_sources("allocator", _LOGGED), **_of_sources("planner", _PLANNED)}
    return {place: text for place, text in found.items() if len(text) > 8}


def _of_package() -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / "patches" / "stalloc").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("log.warning", "log.error", "log.fatal"):
                found[_place(path, node.lineno)] = _longest(_parts(node.args[0]))
    return found


def _parts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.JoinedStr):
        return [str(value.value) for value in node.values if isinstance(value, ast.Constant)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _of_sources(folder: str, pattern: re.Pattern[str]) -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / folder).rglob("*.cc")) + sorted((ROOT / folder).rglob("*.h")):
        text = path.read_text(encoding="utf-8")
        for match in pattern.finditer(text):
            literal = "".join(ast.literal_eval(part) for part in re.findall(_STRING, match[1]))
            found[_place(path, text.count("\n", 0, match.start()) + 1)] = _longest(_FORMAT.split(literal))
    return found


def _longest(parts: list[str]) -> str:
    return max((part.strip(" ;:,()=") for part in parts), key=len, default="")


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
