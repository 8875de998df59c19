"""Ranks that a script starts itself: each is traced, planned and served, where the process that starts them is not."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import Finished, Training
from stalloc.train import started

# Two ranks of other sizes. HOW: what tells a rank its number.
SPAWNS = """
import json, os, sys, tempfile
import torch

def rank_main(rank, world, folder, how):
    if how == "variable":
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    if how == "group":
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(96 + 8 * i, 104 + 8 * i) for i in range(12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(int(os.environ["ITERATIONS"])):
        loss = model(torch.ones(40 * (1 + rank), 96)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    import stalloc
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump([stalloc.mode(), losses], file)

def main():
    how = sys.argv[1]
    if how == "after":
        torch.zeros(1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.start_processes
        context(rank_main, (2, folder, how), nprocs=2, start_method="fork" if how == "fork" else "spawn")
        print(json.dumps([json.load(open(f"{folder}/{rank}.json")) for rank in range(2)]), flush=True)

if __name__ == "__main__":
    main()
"""


def spawn(training: Training, mode: str | None, how: str, *, iterations: int = 14, **extra: str) -> Finished:
    program = training.directory / "spawns.py"
    program.write_text(SPAWNS)
    extra = {"STALLOC_AUTO_WAIT": "1", "ITERATIONS": str(iterations), **extra}
    return training.cold().start_plain(mode, "-m", "stalloc", "run", str(program), how, **extra).good()


def losses(finished: Finished) -> list[Any]:
    return [losses for _, losses in json.loads(finished.out.splitlines()[-1])]


def reached(training: Training, rank: int) -> list[str]:
    path = training.info / "log_output" / f"rank{rank:05d}.auto.json"
    return [stage["stage"] for stage in json.loads(path.read_text())["stages"]]


@pytest.mark.parametrize("how", ["variable", "group", "order"])
def test_spawned_ranks_are_planned_each_for_itself(training: Training, how: str) -> None:
    first = spawn(training, "Auto", how, STALLOC_LOG_LEVEL="debug")
    for rank in range(2):
        assert reached(training, rank) == ["tracing", "planning", "planned"]
        assert f"rank {rank} is served from its plan from iteration" in first.err
        summary = json.loads((training.info / "log_output" / f"rank{rank:05d}.summary.json").read_text())
        assert summary["rank"] == rank
        assert summary["steady"]["hits"] >= 0.99 * summary["steady"]["requests"] > 100
    assert "warning" not in first.err
    second = spawn(training, "Auto", how, STALLOC_LOG_LEVEL="debug")
    for rank in range(2):
        assert reached(training, rank) == ["planned"]
        line = f"[stalloc] rank {rank} is served from the plan of an earlier start of this run"
        assert second.err.count(line) == 1, "the process that starts them says nothing"
    assert losses(second) == losses(first)


def test_the_one_that_starts_them_does_not_keep_its_rank(training: Training) -> None:
    done = spawn(training, "Auto", "variable", RANK="0", WORLD_SIZE="2")
    assert [reached(training, rank) for rank in range(2)] == [["tracing", "planning", "planned"]] * 2
    assert "warning" not in done.err


def test_spawned_ranks_are_traced_and_served(training: Training) -> None:
    traced = spawn(training, "Trace", "variable", iterations=5)
    assert "warning" not in traced.err
    assert traced.err.count("next: stalloc plan") == 1, "of rank 0, and not of the process that starts it"
    planned = training.plan()
    assert [rank["rank"] for rank in planned["ranks"]] == [0, 1]
    served = spawn(training, "Alloc", "variable")
    for rank in range(2):
        summary = json.loads((training.info / "log_output" / f"rank{rank:05d}.summary.json").read_text())
        assert summary["steady"]["hits"] == summary["steady"]["requests"] > 100
    assert losses(served)[0][:5] == losses(traced)[0]


@pytest.mark.parametrize(("how", "why"), [("after", "has allocated memory as rank 0 itself"), ("fork", "forked it")])
def test_ranks_that_are_not_traced_say_so_once(training: Training, how: str, why: str) -> None:
    done = spawn(training, "Auto", how)
    told = [line for line in done.err.splitlines() if "neither traced nor planned" in line]
    assert len(told) == 1
    assert why in told[0]
    assert "start ranks with torchrun, or set RANK for each" in told[0]


def test_a_worker_that_trains_nothing_is_not_active(training: Training, tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text(
        """
import torch
from torch.utils.data import DataLoader, Dataset

class Ones(Dataset):
    def __len__(self): return 24
    def __getitem__(self, i):
        import stalloc
        assert stalloc.mode() is None
        return torch.ones(96) * i

def main():
    loader = iter(DataLoader(Ones(), 2, num_workers=2, multiprocessing_context="spawn"))
    first = next(loader)  # its workers are there before the program has allocated much
    model = torch.nn.Sequential(*(torch.nn.Linear(96 + 8 * i, 104 + 8 * i) for i in range(12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in (first, *loader):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    main()
"""
    )
    done = training.cold().start_plain("Auto", "-m", "stalloc", "run", str(program), STALLOC_AUTO_WAIT="1").good()
    assert reached(training, 0) == ["tracing", "planning", "planned"]
    assert "warning" not in done.err


# On a GPU, which is not here: every way to it comes by torch._C._cuda_init ------------------------------------------


class FakeCuda:
    """As much of torch as it takes."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._C = self

    def _cuda_init(self) -> str:
        self.order.append("initialised")
        return "result"


def test_a_process_is_asked_before_its_gpu_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    started.before_use("cuda", lambda: torch.order.append("asked"))
    assert torch.order == []
    assert torch._C._cuda_init() == "result"
    assert torch._C._cuda_init() == "result"
    assert torch.order == ["asked", "initialised", "initialised"]


def test_what_goes_wrong_then_does_not_reach_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", torch)

    def fails() -> None:
        raise RuntimeError("no libraries")

    started.before_use("cuda", fails)
    assert torch._C._cuda_init() == "result"
    assert "no libraries; going on with plain torch" in capsys.readouterr().err


def test_a_rank_of_a_launcher_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    started.take_rank()
    assert started.RANK not in os.environ
