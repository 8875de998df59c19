"""`stalloc info`: versions, libraries, and whether they fit the torch that is installed."""

from __future__ import annotations

import argparse
import json
import os
import platform
from typing import Any, Optional

from stalloc import _library
from stalloc._version import __version__

HELP = "print versions, the libraries found and whether they fit this torch"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for scripts")


def run(arguments: argparse.Namespace) -> int:
    mode = os.environ.pop("STALLOC_MODE", None)  # importing torch must install nothing here
    facts = collect()
    facts["environment"]["STALLOC_MODE"] = mode
    print(json.dumps(facts, indent=2) if arguments.json else _as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """Everything that the command prints. Imports torch if there is one."""
    torch, torch_error = _torch_version()
    return {
        "stalloc": __version__,
        "python": platform.python_version(),
        "torch": torch,
        "torch_error": torch_error,
        "libstalloc": _library_facts(_library.Library, _library.LIBRARY_NAME),
        "adapter": _adapter_facts(torch),
        "planner": _text(_library.find(_library.PLANNER_NAME)),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("STALLOC_")},
    }


def _torch_version() -> tuple[Optional[str], Optional[str]]:
    try:
        import torch
    except Exception as error:  # a broken torch is a finding, not a reason to stop
        return None, str(error)
    return str(torch.__version__), None


def _library_facts(kind: type[_library.Library], name: str) -> dict[str, Any]:
    path = _library.find(name)
    facts: dict[str, Any] = {"path": _text(path), "version": None, "error": None}
    if path is None:
        facts["error"] = "not found"
        return facts
    try:
        facts["version"] = kind(path).version
    except _library.LibraryError as error:
        facts["error"] = str(error)
    return facts


def _adapter_facts(torch: Optional[str]) -> dict[str, Any]:
    facts = _library_facts(_library.TorchLibrary, _library.TORCH_LIBRARY_NAME)
    facts.update(built_for=None, cuda=None, fits_torch=False)
    if facts["error"] is None:
        adapter = _library.TorchLibrary(_library.find_or_raise(_library.TORCH_LIBRARY_NAME))
        facts.update(built_for=adapter.built_for, cuda=adapter.has_cuda)
        facts["fits_torch"] = torch is not None and _library.same_torch(adapter.built_for, torch)
    return facts


def _text(path: Optional[object]) -> Optional[str]:
    return None if path is None else str(path)


def _as_text(facts: dict[str, Any]) -> str:
    adapter = facts["adapter"]
    fits = "fits" if adapter["fits_torch"] else "does not fit"
    built = f", built for torch {adapter['built_for']}, {fits}" if adapter["built_for"] else ""
    cuda = {True: ", with CUDA", False: ", without CUDA", None: ""}[adapter["cuda"]]
    rows = [
        ("stalloc", facts["stalloc"]),
        ("python", facts["python"]),
        ("torch", facts["torch"] or f"none ({facts['torch_error']})"),
        ("libstalloc", _library_row(facts["libstalloc"])),
        ("torch adapter", _library_row(adapter) + built + cuda),
        ("planner", facts["planner"] or "not found"),
        *((name, value or "unset") for name, value in facts["environment"].items()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _library_row(facts: dict[str, Any]) -> str:
    if facts["error"] is not None:
        return str(facts["error"])
    return f"{facts['version']} {facts['path']}"
