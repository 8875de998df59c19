"""The reports of pytest, GoogleTest and pytorch_suite.py, cut down to what a reader asks first.

Each function returns {} where the program left no report, or an unfinished one.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

LINES_OF_A_FAILURE = 25


def junit(path: Path) -> dict[str, Any]:
    """Counts, failures, why tests were skipped, and what tests recorded about themselves."""
    if not path.exists():
        return {}
    failures: dict[str, str] = {}
    skipped: Counter[str] = Counter()
    recorded: dict[str, dict[str, str]] = {}
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{str(case.get('classname')).rsplit('.', maxsplit=1)[-1]}::{case.get('name')}"
        failed = [element for kind in ("failure", "error") for element in case.findall(kind)]
        skip = case.find("skipped")
        if failed:
            failures[name] = _end(failed[0].text or failed[0].get("message", ""))
        elif skip is not None:
            skipped[skip.get("message", "")] += 1
        counts["failed" if failed else "passed" if skip is None else "skipped"] += 1
        properties = {str(each.get("name")): str(each.get("value")) for each in case.iter("property")}
        if properties:
            recorded[name] = properties
    return {"counts": counts, "failures": failures, "skipped_because": skipped, "recorded": recorded}


def gtest(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    failures: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for suite in json.loads(path.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            name = f"{suite['name']}.{case['name']}"
            if "failures" in case:
                failures[name] = _end("\n".join(each["failure"] for each in case["failures"]))
            skipped = case["result"] == "SKIPPED" or case["status"] == "NOTRUN"
            counts["failed" if "failures" in case else "skipped" if skipped else "passed"] += 1
    return {"counts": counts, "failures": failures}


def pytorch_suite(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    keys = ("counts", "seconds", "stalloc", "not_reached")
    modes = {}
    for mode, result in json.loads(path.read_text()).items():
        messages = {test: _end(result["tests"][test].get("message", "")) for test in result["new_failures"]}
        modes[mode] = {key: result[key] for key in keys} | {"new_failures": messages}
    return {"modes": modes}


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LINES_OF_A_FAILURE:])
