"""`stalloc doctor`: what works on this machine, what does not, and what to do about it."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence

from stalloc.core import log
from stalloc.tools.commands import info, options
from stalloc.tools.doctor import gpu, memory, sharing, software, storage
from stalloc.tools.doctor.machine import FAILURE, OK, WARNING, Finding, Machine

EXAMPLES = ("doctor", "doctor --json")

_EPILOG = """
The command checks torch and the adapter for it, the planner, the CUDA driver and its devices' virtual memory
management. It also checks whether processes may share memory, directories, limits of the host and STALLOC_ variables.
It changes nothing and starts nothing on a GPU. The exit code is 1 if something must be fixed before stalloc works as
configured.
"""
_CHECKS = (
    software.versions,
    software.adapter,
    software.planner,
    software.frameworks,
    software.environment,
    gpu.driver,
    sharing.between_processes,
    storage.directories,
    memory.limits,
)
_SIGNS = {OK: "ok  ", WARNING: "note", FAILURE: "FAIL"}
_COLOURS = {OK: "32", WARNING: "33", FAILURE: "31"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    findings = examine(_this_machine())
    failed = sum(finding.status == FAILURE for finding in findings)
    if arguments.json:
        rows = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps({"ok": failed == 0, "findings": rows, "installed": info.collect()}, indent=1))
    else:
        for line in show(findings, colours=log.in_colour(sys.stdout)):
            print(line)
    return 1 if failed else 0


def examine(machine: Machine) -> list[Finding]:
    """All checks; one that breaks is a finding, too."""
    found: list[Finding] = []
    for check in _CHECKS:
        try:
            found += check(machine)
        except Exception as error:  # the others shall still be seen
            what = f"the check {check.__module__}.{check.__name__} broke: {type(error).__name__}: {error}"
            found.append(Finding("doctor", WARNING, what, "please report it in an issue"))
    return found


def _this_machine() -> Machine:
    mode = os.environ.pop("STALLOC_MODE", None)  # importing torch must install nothing here
    try:
        return Machine(torch=importlib.import_module("torch"))
    except Exception as error:  # a broken torch is a finding
        return Machine(torch_error=f"{type(error).__name__}: {error}")
    finally:
        if mode is not None:
            os.environ["STALLOC_MODE"] = mode


def show(findings: Sequence[Finding], colours: bool) -> Iterator[str]:
    """Lines of text: each finding, then what to do."""
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        sign = _SIGNS[finding.status]
        yield f"{_painted(sign, finding.status) if colours else sign}  {finding.subject:<{width}}  {finding.fact}"
        if finding.advice:
            yield f"{'':<{width + 8}}-> {finding.advice}"
    failed = [finding.subject for finding in findings if finding.status == FAILURE]
    yield (
        f"\nto be mended first: {', '.join(dict.fromkeys(failed))}"
        if failed
        else "\nnothing here keeps stalloc from working"
    )


def _painted(text: str, status: str) -> str:
    return f"\033[{_COLOURS[status]}m{text}\033[0m"
