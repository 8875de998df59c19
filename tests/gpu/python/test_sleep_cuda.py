"""Sleep and wake on a GPU: the device has its memory back, and what was made before goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
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


def test_orders_from_another_process_between_iterations_and_in_the_last_one(library: Path, tmp_path: Path) -> None:
    training = Training(library.parent, tmp_path)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "patches"),
        **training.environment("Auto", STALLOC_DEVICE="cuda"),
    }
    stop = tmp_path / "stop"

    def order(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stalloc", *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    program = subprocess.Popen(
        [sys.executable, "-m", "stalloc", "run", str(PROGRAMS / "sleep_cases.py"), "orders", str(stop)],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert Path(program.stdout.readline().strip()).is_socket()
        pid = str(program.pid)
        for _ in range(2):
            out, err = (client := order("sleep", pid, "--json")).communicate(timeout=120)
            assert client.returncode == 0, err
            (answer,) = json.loads(out)["processes"]
            assert answer["result"]["devices"][0]["given_back_bytes"] >= 4 * 64 * _MIB
            _, err = (client := order("wake", pid)).communicate(timeout=120)
            assert client.returncode == 0, err
        threads = Path(f"/proc/{pid}/task")
        stop.touch()
        assert program.stdout.readline().strip() == "last"
        before = len(list(threads.iterdir()))
        client = order("sleep", pid)
        deadline = time.monotonic() + 60
        while len(list(threads.iterdir())) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        out, _ = program.communicate("\n", timeout=120)
        _, err = client.communicate(timeout=60)
    finally:
        program.kill()
    assert (program.returncode, client.returncode) == (0, 1)
    assert "the program is ending, and takes no more orders" in err
    assert json.loads(out.splitlines()[-1])["whole"]


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
    """More of them: bench/sleep/measure.py cycles --cycles 100."""
    output = tmp_path / "cycles.json"
    environment = {**os.environ, "STALLOC_LIB_PATH": str(library.parent)}
    size = ["--cycles", "4", "--width", "1024", "--layers", "4"]  # growth is looked at from the third on
    words = [sys.executable, str(BENCH / "measure.py"), "cycles", *size, "--json", str(output)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=280, check=False)
    result = json.loads(output.read_text()) if output.exists() else {}
    said = {name: value for name, value in result.items() if name != "rows"}
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert result["losses_are_equal"]
    assert result["weights_are_equal"]
