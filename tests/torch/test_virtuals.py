"""Every virtual function of torch's allocator classes is overridden: a base class's default would hide the native one.

torch adds functions to these classes in about every second release. This test tells which one is missing when the
adapter is built for a new torch.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLASSES = {
    "c10/core/Allocator.h": "struct C10_API Allocator {",
    "c10/core/CachingDeviceAllocator.h": "struct C10_API DeviceAllocator : public c10::Allocator {",
    "c10/cuda/CUDACachingAllocator.h": "class CUDAAllocator : public DeviceAllocator {",
}


def virtual_functions(text: str) -> list[tuple[str, int]]:
    """Name and number of parameters of each virtual function (or override) that a class body declares."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = []
    for match in re.finditer(r"(?:virtual\b[^;{}()]*?|^\s*(?:\w[\w:<>, ]*[\s&*]+))(~?\w+)\s*\(", text, re.MULTILINE):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        tail = text[end : end + 60].lstrip()
        is_virtual = match.group(0).lstrip().startswith("virtual") or re.match(
            r"(const\s*)?(noexcept\s*)?override", tail
        )
        if not is_virtual:
            continue
        parameters = re.sub(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}", "", text[match.end() : end - 1])
        parameters = re.sub(r"<[^<>]*>", "", parameters).strip()
        found.append((match.group(1), len(parameters.split(",")) if parameters else 0))
    return found


def class_body(text: str, opening: str) -> str:
    start = text.index(opening) + len(opening)
    end, depth = start, 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start : end - 1]


def test_no_virtual_function_is_left_to_a_base_class() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("this interpreter has no torch")
    include = Path(spec.origin).parent / "include"
    ours = (ROOT / "allocator/torch/cuda_allocator.h").read_text()
    overridden = set(virtual_functions(class_body(ours, "CUDAAllocator {")))
    expected = set()
    for header, opening in CLASSES.items():
        expected |= set(virtual_functions(class_body((include / header).read_text(), opening)))
    assert len(expected) > 40, "the headers were not understood"
    missing = sorted(name for name, _ in expected - overridden if not name.startswith("~"))
    assert missing == []
