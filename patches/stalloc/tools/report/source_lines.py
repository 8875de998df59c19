"""The line of a program that a stack of calls names, and the variables that its statement assigns."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator
from typing import Optional


def assigned(calls: str, site: str) -> list[str]:
    """The variables that the statement at a call site assigns: ["logits"], ["model.state"]; empty where none is known.

    Args:
        calls: the stack, a call a line ("/home/me/train.py:19 main"), innermost first.
        site: one of these calls without its folder ("train.py:19 main").
    """
    place = next((call for call in calls.splitlines() if os.path.basename(call) == site), None)
    if place is None:
        return []
    path, _, line = place.rpartition(" ")[0].rpartition(":")
    tree = _parsed(path)
    if tree is None or not line.isdigit():
        return []
    around = [statement for statement in _statements(tree) if _holds(statement, int(line))]
    innermost = max(around, key=lambda statement: statement.lineno, default=None)
    return [ast.unparse(target) for target in _targets(innermost)]


@functools.lru_cache(maxsize=32)
def _parsed(path: str) -> Optional[ast.Module]:
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None  # the program is on another machine, or is no Python


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _targets(statement: Optional[ast.stmt]) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        found = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        found = [statement.target]
    else:
        return []
    flat = [part for target in found for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [target for target in flat if isinstance(target, (ast.Name, ast.Attribute))]
