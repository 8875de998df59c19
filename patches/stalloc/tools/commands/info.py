"""The installation as `stalloc doctor --json` shows it: versions, libraries, and whether they fit this torch."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any, Optional

from stalloc.core import library
from stalloc.core.version import __version__
from stalloc.tools.commands import options

EXAMPLES = ("info", "info --json")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    mode = os.environ.pop("STALLOC_MODE", None)  # importing torch must install nothing here
    facts = collect()
    facts["environment"]["STALLOC_MODE"] = mode
    print(json.dumps(facts, indent=2) if arguments.json else _as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """Everything that the command prints. Imports torch if there is one."""
    torch, torch_error, include = _torch()
    return {
        "stalloc": __version__,
        "python": platform.python_version(),
        "torch": torch,
        "torch_error": torch_error,
        "libstalloc": _library_facts(library.Library, library.LIBRARY_NAME),
        "adapter": _adapter_facts(torch, include),
        "planner": _text(library.find(library.PLANNER_NAME)),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("STALLOC_")},
    }


def _torch() -> tuple[Optional[str], Optional[str], Path]:
    """Its version, or why it cannot be imported; its headers."""
    try:
        import torch
    except Exception as error:  # a broken torch is a finding, not a reason to stop
        return None, str(error), Path()
    return str(torch.__version__), None, Path(torch.__file__).parent / "include"


def _library_facts(kind: type[library.Library], name: str) -> dict[str, Any]:
    path = library.find(name)
    facts: dict[str, Any] = {"path": _text(path), "version": None, "error": None}
    if path is None:
        facts["error"] = "not found"
        return facts
    try:
        facts["version"] = kind(path).version
    except library.LibraryError as error:
        facts["error"] = str(error)
    return facts


def _adapter_facts(torch: Optional[str], include: Path) -> dict[str, Any]:
    """The facts of the adapter for this torch, else of those for other versions."""
    facts: dict[str, Any] = {"path": None, "version": None, "error": None}
    facts.update(built_for=None, cuda=None, fits_torch=False)
    try:
        path = library.find_adapter(torch or "", include)
        adapter = library.TorchLibrary(path)
    except library.UnfitTorchError:
        others = library.adapters()
        facts.update(path=_text(others[0][0]), built_for=", ".join(claim.torch for _, claim in others))
    except library.LibraryError as error:
        facts["error"] = str(error)
    else:
        facts.update(path=_text(path), version=adapter.version, built_for=adapter.built_for, cuda=adapter.has_cuda)
        facts["fits_torch"] = True
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
    return f"{facts['version'] or ''} {facts['path']}".strip()
