"""pytorch_suite.py on a small file of tests that need no device: who runs what, crashes, and a mode that is cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpu_devices import visible_devices  # noqa: E402
from pytorch_suite_shards import Share, assign, shares_of  # noqa: E402

TESTS = """
import os, time, unittest

class TestCuda(unittest.TestCase):
    def test_device(self): assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    def test_fails(self): assert 1 + 1 == 3
    def test_crashes(self): os.abort()
    def test_hangs(self): time.sleep(float(os.environ.get("HANG", 0)))
    def test_large(self): assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    @unittest.skip("no reason")
    def test_skipped(self): pass

class TestSomethingElse(unittest.TestCase):
    def test_never(self): raise RuntimeError
"""
MULTIPLE = """
import os, unittest

class TestCudaMultiGPU(unittest.TestCase):
    def test_both(self): assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
"""


def start(directory: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    (directory / "test_cuda.py").write_text(TESTS)
    (directory / "test_cuda_multigpu.py").write_text(MULTIPLE)
    files = [str(directory / name) for name in ("test_cuda.py", "test_cuda_multigpu.py")]
    command = [sys.executable, str(HERE / "pytorch_suite.py"), *files, "--output", str(directory / "out.json")]
    command += ["--modes", "native", "--work", str(directory / "work"), "--passes", "2", "--workers", "2", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"CUDA_VISIBLE_DEVICES": "0,1"} | variables
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=directory, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str], directory: Path, code: int = 0) -> dict[str, Any]:
    out = process.communicate(timeout=120)[0]
    assert process.returncode == code, out
    native: dict[str, Any] = json.loads((directory / "out.json").read_text())["native"]
    return native


def test_every_test_runs_where_it_belongs_and_a_crash_is_one_tests(tmp_path: Path) -> None:
    native = finish(start(tmp_path), tmp_path)
    outcomes = {test.split("::", 1)[1]: result["outcome"] for test, result in native["tests"].items()}
    assert outcomes == {
        "TestCuda::test_device": "passed",
        "TestCuda::test_fails": "failed",
        "TestCuda::test_crashes": "crashed",
        "TestCuda::test_hangs": "passed",
        "TestCuda::test_large": "passed",
        "TestCuda::test_skipped": "skipped",
        "TestCudaMultiGPU::test_both": "passed",
    }
    assert "1 + 1" in native["tests"]["test_cuda.py::TestCuda::test_fails"]["message"]


def test_a_mode_that_takes_too_long_is_cut_off(tmp_path: Path) -> None:
    native = finish(start(tmp_path, "--limit", "12", HANG="1000"), tmp_path)
    assert native["seconds"] < 30
    assert "test_cuda.py::TestCuda::test_hangs" not in native["tests"]
    assert native["tests"]["test_cuda.py::TestCuda::test_large"]["outcome"] == "passed", "it has a device of its own"


def test_an_interrupt_keeps_what_was_found_out(tmp_path: Path) -> None:
    process = start(tmp_path, HANG="1000")
    record = tmp_path / "work" / "alone" / "native.jsonl"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (record.exists() and record.read_text().count('"end"') == 2):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    native = finish(process, tmp_path, 1)
    assert native["tests"]["test_cuda.py::TestCuda::test_large"]["outcome"] == "passed"
    assert "test_cuda.py::TestCuda::test_hangs" not in native["tests"]


def test_one_device_has_everything_and_two_are_divided() -> None:
    shards, alone, multiple = shares_of(3, ["0"])
    assert {share.devices for share in [*shards, alone, multiple]} == {("0",)}
    shards, alone, multiple = shares_of(3, ["4", "7"])
    assert shards == [Share(str(number), ("4",)) for number in range(3)]
    assert (alone.devices, multiple.devices) == (("7",), ("4", "7"))


def test_long_tests_are_spread() -> None:
    assigned = assign({"a": 9.0, "b": 5.0, "c": 4.0, "d": 1.0, "e": 0.5}, 2)
    assert Counter(assigned.values()) == {0: 2, 1: 3}
    assert assigned["b"] == assigned["c"] != assigned["a"]


@pytest.mark.parametrize(("given", "names"), [("0,1", ["0", "1"]), ("", []), ("-1", []), ("GPU-a, 3", ["GPU-a", "3"])])
def test_visible_devices_are_those_of_the_environment(given: str, names: list[str]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": given}) == names
