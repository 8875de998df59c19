"""Reading JSON, or YAML, that people wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. OSError, or ValueError naming the file and what was found."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _object(path, content)


def read_yaml_or_json(path: Path) -> dict[str, Any]:
    """The same of a file that is YAML if its name ends in .yaml or .yml; ValueError, too, where PyYAML is missing."""
    if path.suffix not in (".yaml", ".yml"):
        return read_object(path)
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path}: YAML needs `pip install pyyaml`; a .json file needs nothing") from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    return _object(path, content)


def _object(path: Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected an object, found {type(content).__name__}")
    return content
