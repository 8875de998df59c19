"""Lines and TensorBoard scalars of each iteration (STALLOC_LOG_STEPS, STALLOC_TENSORBOARD)."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from processes import FakeProcess
from stalloc.core import config
from stalloc.train import scalars

SCRIPT = "import stalloc\nfor i in range(6): stalloc.iteration(i)\n"
WRITER = """
from pathlib import Path

class SummaryWriter:
    def __init__(self, directory):
        self._file = Path(directory) / "scalars.txt"
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def add_scalar(self, name, value, step):
        with self._file.open("a") as file:
            file.write(f"{step} {name}={value}\\n")

    def flush(self): ...
"""


@pytest.fixture
def tensorboard(fake: FakeProcess) -> FakeProcess:
    """A package of that name, and a torch.utils.tensorboard, for the fake torch."""
    site = fake.directory / "site"
    (site / "tensorboard").mkdir(parents=True)
    (site / "tensorboard" / "__init__.py").write_text("raise ImportError('nobody needs it at the start')")
    (site / "writer.py").write_text(WRITER)
    (site / "sitecustomize.py").write_text("import sys, writer; sys.modules['torch.utils.tensorboard'] = writer\n")
    fake.environment["PYTHONPATH"] += f":{site}"
    return fake


def lines_of(err: str) -> list[str]:
    return [line.split(":")[0].split()[-1] for line in err.splitlines() if "peak live" in line]


@pytest.mark.parametrize(
    ("steps", "iterations"), [("1", ["0", "1", "2", "3", "4", "5"]), ("2", ["1", "3", "5"]), ("0", [])]
)
def test_a_line_comes_after_every_so_many_iterations(fake: FakeProcess, steps: str, iterations: list[str]) -> None:
    done = fake.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_LOG_STEPS=steps).good()
    assert lines_of(done.err) == iterations


def test_without_the_variable_the_log_level_decides(fake: FakeProcess) -> None:
    assert lines_of(fake.python("-c", SCRIPT, STALLOC_MODE="Alloc").err) == []
    assert len(lines_of(fake.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_LOG_LEVEL="1").err)) == 6


def test_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"STALLOC_LOG_STEPS must be .*'often'"):
        config.read_config({"STALLOC_MODE": "Trace", "STALLOC_LOG_STEPS": "often"})


def test_each_iteration_has_its_scalars(tensorboard: FakeProcess, tmp_path: Path) -> None:
    tensorboard.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_TENSORBOARD=str(tmp_path / "tb"), RANK="3").good()
    written = (tmp_path / "tb" / "rank00003" / "scalars.txt").read_text().splitlines()
    assert written[:4] == [
        "0 stalloc/peak live GiB=2.0",
        "0 stalloc/peak held GiB=4.0",
        "0 stalloc/requests=10.0",
        "0 stalloc/planned=9.0",
    ]
    assert {line.split()[0] for line in written} == {"0", "1", "2", "3", "4", "5"}


def test_without_the_package_one_error_says_so(fake: FakeProcess) -> None:
    if scalars.importlib.util.find_spec("tensorboard") is not None:
        pytest.skip("tensorboard is installed here")
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", STALLOC_TENSORBOARD="tb")
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        "RuntimeError: STALLOC_TENSORBOARD needs the package tensorboard: pip install tensorboard"
    )


def test_scalars_that_cannot_be_written_end_in_one_warning(tensorboard: FakeProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = tensorboard.python("-c", SCRIPT, STALLOC_MODE="Alloc", STALLOC_TENSORBOARD=str(tmp_path / "file")).good()
    assert done.err.count("no memory figures from now on: no scalars: ") == 1


def test_devices_are_told_apart() -> None:
    stats = {"devices": [{"device": -1, "live_bytes": 1 << 29}, {"device": 1, "live_bytes": 1 << 30}]}
    assert dict(scalars.of_stats(stats)) == {"stalloc/device -1/live GiB": 0.5, "stalloc/device 1/live GiB": 1.0}


def test_the_share_of_planned_requests_is_the_trainings() -> None:
    device = {"planned_hits": 90, "requests": 500, "steady": {"requests": 80, "hits": 60, "fenced": 400}}
    assert dict(scalars.of_stats({"devices": [device]}))["stalloc/planned of steady requests"] == 0.75
    device["steady"] = {"requests": 0, "hits": 0, "fenced": 0}
    assert "stalloc/planned of steady requests" not in dict(scalars.of_stats({"devices": [device]}))


def test_torch_s_own_figures() -> None:
    stats = {
        f"{kind}_bytes.all.{when}": size << 30
        for kind, when, size in [
            ("allocated", "current", 1),
            ("allocated", "peak", 2),
            ("reserved", "current", 3),
            ("reserved", "peak", 4),
        ]
    }
    cuda = types.SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1, memory_stats=lambda _: stats)
    assert dict(scalars.of_torch(types.SimpleNamespace(cuda=cuda))) == {
        "stalloc/allocated GiB": 1,
        "stalloc/peak allocated GiB": 2,
        "stalloc/reserved GiB": 3,
        "stalloc/peak reserved GiB": 4,
    }
    idle = types.SimpleNamespace(is_initialized=lambda: False)
    assert not dict(scalars.of_torch(types.SimpleNamespace(cuda=idle)))
