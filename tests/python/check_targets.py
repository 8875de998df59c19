"""Looks for the targets of one version of a framework in its source tree, without importing it.

    python tests/python/check_targets.py DIRECTORY VERSION [ADAPTER]     # DIRECTORY contains megatron/, or the like

ADAPTER is a module with TARGETS, Megatron's by default. Prints what is missing; exit code 1 if anything is.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from stalloc.train.patching import Target, parse_version


def missing_targets(directory: Path, version: str, targets: Sequence[Target]) -> list[str]:
    """Names of the targets that the version should have, and the source does not define."""
    wanted = [target for target in targets if target.is_of(parse_version(version))]
    return [target.name for target in wanted if not _is_defined(directory, target)]


def _is_defined(directory: Path, target: Target) -> bool:
    path = directory.joinpath(*target.module.split("."))
    source = next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)
    if source is None:
        return False
    body: list[ast.stmt] = ast.parse(source.read_text()).body
    *classes, function = target.attribute.split(".")
    for name in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name), [])
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in body)


if __name__ == "__main__":
    ADAPTER = importlib.import_module(sys.argv[3] if len(sys.argv) > 3 else "stalloc.train.megatron.targets")
    MISSING = missing_targets(Path(sys.argv[1]), sys.argv[2], ADAPTER.TARGETS)
    print("\n".join(MISSING) or "all found")
    sys.exit(1 if MISSING else 0)
