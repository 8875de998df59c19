"""Reports of out-of-memory errors of real training on the CPU, in every mode."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from processes import SCRIPTS, Finished, Training, run_python
from schemas import expect_document
from stalloc.train.oom import classes, names, torch_mode

torch = pytest.importorskip("torch")

SCRIPT = str(SCRIPTS / "failing_training.py")
TOO_MUCH = 1 << 50
# Bytes of scripts/failing_training.py, each block rounded to 512.
WEIGHTS = 2 * 64 * 300 * 4 + 1536 + 512
HIDDEN = -(-333 * 300 * 4 // 512) * 512
OUT = -(-333 * 64 * 4 // 512) * 512


def train(training: Training, mode: Optional[str], *options: str, **extra: str) -> Finished:
    """Ends with the error, unless it is caught."""
    reports = str(training.directory / "reports")
    start = ("-m", "stalloc", "run") if mode is not None else ()
    return training.start_plain(mode, *start, SCRIPT, *options, STALLOC_OOM_REPORT=reports, **extra)


def path_of(training: Training) -> Path:
    (path,) = (training.directory / "reports").glob("rank00000.pid*.oom1.json")
    return path


def shown(training: Training, *options: str) -> str:
    done = run_python(
        "-m", "stalloc", "oom", str(path_of(training)), *options, environment=training.environment(None)
    ).good()
    return done.out


def by_class(report: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for block in report["live_blocks"]:
        found[block.get("class", "")] += -(-block["bytes"] // 512) * 512
    return dict(found)


@pytest.mark.parametrize("mode", [None, pytest.param("Torch", marks=pytest.mark.slow)])
def test_under_pytorch_s_own_allocator_reachable_tensors_are_named(mode: Optional[str], training: Training) -> None:
    done = train(training, mode)
    assert done.code == 1
    assert "you tried to allocate" in done.err
    assert f"out of memory; report: {path_of(training)}" in done.err
    report = json.loads(path_of(training).read_text())
    assert report["request"]["bytes"] == TOO_MUCH
    assert report["mode"] == (mode or "none")
    found = by_class(report)
    assert found["weights"] == WEIGHTS
    assert found["optimizer state"] == 2 * WEIGHTS + 4 * 512, "with a step of each of four parameters"
    named = {name for block in report["live_blocks"] for name in block.get("names", [])}
    assert {"Net.up.weight", "Net.down.bias:exp_avg"} <= named
    text = shown(training)
    told = text.partition("not known:")[2]
    assert "Python can reach" in told
    assert "stacks are not recorded" in told
    assert "phases and the last events are not known" in told


def test_without_an_error_nothing_is_written_and_another_error_is_none(training: Training) -> None:
    done = train(training, None, "catch")
    assert (done.code, done.err) == (0, "")
    assert not (training.directory / "reports").exists()


def test_a_trace_tells_class_tensor_layer_and_stack_of_every_block(training: Training) -> None:
    done = train(training, "Trace", STALLOC_TRACE_STACKS="1", STALLOC_TRACE_MODULES="1")
    assert done.code == 1
    report = json.loads(shown(training, "--json"))
    expect_document("oom", report)
    assert report["phase"] == "iter 3, F 0"
    found = by_class(report)
    assert sum(found.values()) == report["figures"]["live_bytes"], "every block is there"
    assert found["weights"] == WEIGHTS
    assert found["optimizer state"] == 2 * WEIGHTS + 4 * 512
    assert found["activations"] >= 2 * HIDDEN + OUT
    assert found["inputs"] == OUT, "as large as the output"
    hidden = [block for block in report["live_blocks"] if block["bytes"] == HIDDEN]
    assert {block["layer"] for block in hidden} == {"Net.up", "Net"}
    assert {block["call_site"].partition(" ")[2] for block in hidden} == {"Net.forward"}
    text = shown(training, "--stacks", "--blocks", "400")
    assert "activations; Net.up; iter 3, F 0; failing_training.py:" in text
    assert "weights; parameter Net.up.weight; Net.up; set-up; failing_training.py:" in text
    assert "not known:" not in text


@pytest.mark.slow
def test_a_trace_that_has_no_stacks_and_layers_says_how_to_get_them(training: Training) -> None:
    assert train(training, "Trace", "catch", STALLOC_TRACE_FAST_MODE="1").code == 0
    report = json.loads(shown(training, "--json"))
    assert by_class(report)["weights"] == WEIGHTS, "the trace goes on behind the error"
    assert {block["from"] for block in report["live_blocks"]} == {"upstream"}
    text = shown(training)
    assert "STALLOC_TRACE_STACKS=1" in text
    assert "STALLOC_TRACE_MODULES=1" in text


def test_a_planned_run_knows_tensors_and_phases(training: Training) -> None:
    assert train(training, "Trace", "catch").code == 0
    training.plan()
    for report in (training.directory / "reports").iterdir():
        report.unlink()
    done = train(training, "Alloc")
    assert "Report: " in done.err
    report = json.loads(path_of(training).read_text())
    assert (report["mode"], report["phase"]) == ("Alloc", "iter 3, F 0")
    found = by_class(report)
    assert found["weights"] == WEIGHTS
    assert found["optimizer state"] == 2 * WEIGHTS + 4 * 512
    assert found["activations"] >= 2 * HIDDEN + OUT
    assert "" not in found
    text = shown(training)
    assert "activations; iter 3, F 0; arena" in text
    assert "stacks are not recorded in mode Alloc" in text


def test_before_auto_has_its_plan_weights_and_state_are_in_the_report(training: Training) -> None:
    done = train(training, "Auto")
    assert done.code == 1
    report = json.loads(path_of(training).read_text())
    found = by_class(report)
    assert sum(found.values()) == report["figures"]["live_bytes"], "those in the arena of what stays, too"
    assert found["weights"] == WEIGHTS
    assert found["optimizer state"] == 2 * WEIGHTS + 4 * 512


@pytest.mark.parametrize(
    ("asked", "now", "expected"),
    [
        ("set-up", "iter 3, F 0", "other"),
        ("iter 3, F 0", "iter 3, B 0", "activations"),
        ("iter 2, F 0", "iter 3, B 0", "other"),
        ("iter 3, B 1", "iter 3, B 1", "temporaries"),
        ("iter 0, optimizer", "iter 3, B 1", "optimizer state"),
        ("iter 3, optimizer", "iter 3, optimizer", "temporaries"),
        ("iter 2, after the optimizer", "iter 3, F 0", "inputs"),
        ("iter 3, between", "iter 3, F 0", "inputs"),
        ("iter 3, between", "iter 3, optimizer", "other"),
        ("iter 3", "iter 3, F 0", "inputs"),
        ("iter 1, between", "iter 3, F 0", "other"),
        ("iter 0, after the optimizer", "iter 3, F 0", "other"),
        ("iter -1, F 0", "iter -1, B 0", "activations"),
        ("iter 3, fence", "iter 3, fence", "other"),
        ("iter 3", "iter 3", "activations"),
    ],
)
def test_without_a_name_the_phase_tells_the_class(asked: str, now: str, expected: str) -> None:
    report = {"phase": now, "live_blocks": [{"address": "0x200", "phase": asked}]}
    classes.classify(report, {})
    assert report["live_blocks"][0]["class"] == expected


def test_a_name_goes_before_the_phase() -> None:
    report: dict[str, Any] = {"phase": "iter 1, F 0", "live_blocks": [{"address": "0x200", "phase": "iter 1, F 0"}]}
    classes.classify(report, {0x200: names.Named("gradient", ["a", "b"])})
    assert report["live_blocks"][0] == {
        "address": "0x200", "phase": "iter 1, F 0", "class": "gradients", "tensor": "gradient", "names": ["a", "b"],
    }  # fmt: skip


class CudaOfPyTorch:
    """As much of torch as an error on a GPU is told from."""

    def __init__(self, parameter: Any) -> None:
        address = parameter.untyped_storage().data_ptr()
        blocks = [
            {"size": 1024, "requested_size": 1000, "address": address, "state": "active_allocated", "frames": []},
            {"size": 512, "address": address + 1024, "state": "inactive", "frames": []},
            {
                "size": 2048,
                "requested_size": 2048,
                "address": address + 1536,
                "state": "active_pending_free",
                "frames": [{"filename": "model.py", "line": 7, "name": "forward"}],
            },
        ]
        self.segments = [
            {"device": 0, "address": address, "stream": 5, "blocks": blocks},
            {"device": 1, "address": 1 << 40, "stream": 0, "blocks": [dict(blocks[0], address=1 << 40)]},
        ]

    def memory_stats(self, device: int) -> dict[str, int]:
        kinds = {"active_bytes.all.current": 3072, "active_bytes.all.peak": 4096, "reserved_bytes.all.current": 8192}
        return {name: count + device for name, count in kinds.items()}

    def _snapshot(self, device: int) -> dict[str, Any]:
        return {"segments": self.segments}


def test_on_a_gpu_pytorch_s_snapshot_has_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(10, 25, bias=False)
    cuda = CudaOfPyTorch(model.weight)
    monkeypatch.setattr(torch_mode, "importlib", SimpleNamespace(import_module=lambda _: cuda))
    queued: list[Any] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    monkeypatch.setattr(
        torch._C, "_cuda_attachOutOfMemoryObserver", lambda told: told(0, 1 << 40, 80 << 30, 5 << 20), raising=False
    )
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    torch_mode.TorchReports(tmp_path, 2).install(torch)
    assert list(tmp_path.iterdir()) == [], "CUDA is not initialised yet"
    queued[0]()
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert (report["rank"], report["device"], report["mode"]) == (2, 0, "Torch")
    assert report["request"] == {"bytes": 1 << 40, "stream": 0}
    assert report["device_memory"] == {"free": 5 << 20, "total": 80 << 30}
    assert report["figures"]["live_bytes"] == 3072
    weight, pending = report["live_blocks"]
    assert (weight["bytes"], weight["requested"], weight["class"]) == (1024, 1000, "weights")
    assert weight["names"] == ["Linear.weight"]
    assert (pending["pending"], pending["stack"]) == (True, ["model.py:7 forward"])
    assert not any("stacks are not recorded" in note for note in report["notes"])
