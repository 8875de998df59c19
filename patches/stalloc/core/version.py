"""The version, which CMakeLists.txt alone states, and where the build has put its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

try:
    from stalloc.core import _build_info  # written by the build into an installed package
except ImportError:
    _BUILT = None
else:
    _BUILT = _build_info

# The package with `lib` and `bin`, in an editable install too; None: nothing is installed.
INSTALLED: Optional[Path] = None if _BUILT is None else Path(str(_BUILT.__file__)).resolve().parents[1]


def _version_of_source_tree(cmake_file: Path) -> str:
    try:
        match = re.search(r"project\(stalloc VERSION ([0-9.]+)", cmake_file.read_text(encoding="utf-8"))
    except OSError:
        match = None
    return match.group(1) if match else "0+unknown"


__version__ = (
    _version_of_source_tree(Path(__file__).resolve().parents[3] / "CMakeLists.txt")
    if _BUILT is None
    else str(_BUILT.VERSION)
)
