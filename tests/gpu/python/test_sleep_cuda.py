"""Sleep and wake on a GPU: the device has its memory back, and what was made before goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_process import PROGRAMS, free_port

from processes import ROOT, Training

pytestmark = pytest.mark.gpu

BENCH = ROOT / "bench" / "sleep"
_MIB = 1 << 20


def run_case(library: Path, directory: Path, case: str, **variables: str) -> dict[str, Any]:
    """Under Auto, in its set-up: what lives is in the arena."""
    done = Training(library.parent, directory).start_plain(
        "Auto", str(PROGRAMS / "sleep_cases.py"), case, STALLOC_DEVICE="cuda", **variables
    )
    assert done.code == 0, done.err
    result: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return result


@pytest.mark.whole_gpu
def test_another_process_has_the_bytes_meanwhile(library: Path, tmp_path: Path) -> None:
    result = run_case(library, tmp_path, "memory")
    assert result["refused_awake"], "the device was not full"
    for asleep, had, whole, saved, restored in result["rounds"]:
        assert result["before"] - asleep > result["size"] - 200 * _MIB
        assert had
        assert whole
        assert saved == restored >= result["size"]
    assert result["same_addresses"]


def test_a_graph_is_replayed_after_the_wake(library: Path, tmp_path: Path) -> None:
    for right, stays in run_case(library, tmp_path, "graphs")["rounds"]:
        assert right
        assert "arena" not in stays


def test_every_stream_runs_behind_the_copies(library: Path, tmp_path: Path) -> None:
    assert run_case(library, tmp_path, "streams")["wrong"] == 0


def test_loader_workers_live_on(library: Path, tmp_path: Path) -> None:
    result = run_case(library, tmp_path, "workers")
    assert result["total"] == result["expected"]
    assert result["whole"]


@pytest.mark.two_gpus
def test_all_reduce_after_the_wake(library: Path, tmp_path: Path) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    training = Training(library.parent, tmp_path)
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "STALLOC_DEVICE": "cuda"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "stalloc", "run", str(PROGRAMS / "sleep_cases.py"), "reduce"],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "patches"),
                **training.environment("Auto", **common, RANK=str(rank), LOCAL_RANK=str(rank)),
            },
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 0
        assert json.loads(out.splitlines()[-1])["results"] == [3.0, 6.0, 12.0]


@pytest.mark.whole_gpu  # what is used of the device is looked at, whoever uses it
def test_cycles_of_training_change_nothing(library: Path, tmp_path: Path) -> None:
    """More of them: bench/sleep/cycles.py --cycles 100."""
    output = tmp_path / "cycles.json"
    environment = {**os.environ, "STALLOC_LIB_PATH": str(library.parent)}
    size = ["--cycles", "4", "--width", "1024", "--layers", "4"]  # growth is looked at from the third on
    words = [sys.executable, str(BENCH / "cycles.py"), *size, "--json", str(output)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
    result = json.loads(output.read_text()) if output.exists() else {}
    said = {name: value for name, value in result.items() if name != "rows"}
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert result["losses_are_equal"]
    assert result["weights_are_equal"]
