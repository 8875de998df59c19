"""The package's lower folders import nothing of what stands on them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "patches" / "stalloc"
# Of the package, what a folder may import at the top of a module.
ALLOWED = {"_core": ("stalloc._core",), "_marking": ("stalloc._core", "stalloc._marking", "stalloc.report.files")}


def imported(source: str) -> set[str]:
    """Modules of the package, with `from stalloc import x` told as stalloc.x; what a function imports is left out."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "stalloc"}


def test_imports_are_told() -> None:
    source = "import os\nimport stalloc\nfrom stalloc import cli\nfrom stalloc._core import _log\n"
    assert imported(source) == {"stalloc", "stalloc.cli", "stalloc._core._log"}


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_a_lower_folder_knows_nothing_above_it(folder: str) -> None:
    modules = sorted((PACKAGE / folder).glob("*.py"))
    assert modules
    wrong = {
        f"{path.name}: {name}"
        for path in modules
        for name in imported(path.read_text())
        if not any(name == prefix or name.startswith(prefix + ".") for prefix in ALLOWED[folder])
    }
    assert not wrong
