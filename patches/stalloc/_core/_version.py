"""The version, which CMakeLists.txt alone states."""

from __future__ import annotations

import re
from pathlib import Path


def _read_version() -> str:
    try:
        from stalloc import _build_info  # written by the build into an installed package
    except ImportError:
        return _version_of_source_tree(Path(__file__).resolve().parents[3] / "CMakeLists.txt")
    return str(_build_info.VERSION)


def _version_of_source_tree(cmake_file: Path) -> str:
    try:
        match = re.search(r"project\(stalloc VERSION ([0-9.]+)", cmake_file.read_text(encoding="utf-8"))
    except OSError:
        match = None
    return match.group(1) if match else "0+unknown"


__version__ = _read_version()
