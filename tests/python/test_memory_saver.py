"""torch_memory_saver's interface on the CPU: what its users rely on, by real tensors in an arena."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from processes import PACKAGE, Finished, Training, run_with_torch

HEAD = """
import torch
from pathlib import Path
from stalloc.memory_saver import configure_subprocess, torch_memory_saver as saver

def resident():
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("RssShmem"))

MIB = 1 << 20
"""


@pytest.fixture
def run(training: Training, tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(program: str, **extra: str) -> Finished:
        script = tmp_path / "program.py"
        script.write_text(HEAD + textwrap.dedent(program))
        environment = {"PYTHONPATH": str(PACKAGE), **training.environment("Auto", **extra)}
        return run_with_torch("-m", "stalloc", "run", str(script), environment=environment, cwd=tmp_path)

    return run


def expect_fine(done: Finished) -> None:
    assert done.code == 0, done.err


def test_memory_goes_and_comes_back_with_what_has_a_backup(run) -> None:  # type: ignore[no-untyped-def]
    expect_fine(
        run(
            """
            before = resident()
            with saver.region(enable_cpu_backup=True):
                kept = torch.full((16 * MIB,), 10, dtype=torch.uint8)
                typed = torch.full((10, 20, 30), 1.5)
            with saver.region():
                dropped = torch.full((16 * MIB,), 20, dtype=torch.uint8)
            addresses = [tensor.data_ptr() for tensor in (kept, dropped)]
            assert resident() >= before + 32 * MIB
            saver.pause()
            assert resident() < before + 4 * MIB
            assert (saver.get_cpu_backup(typed) == 1.5).all()
            assert saver.get_cpu_backup(kept)[:3].tolist() == [10, 10, 10]
            assert saver.get_cpu_backup(dropped) is None
            unrelated = torch.full((16 * MIB,), 30, dtype=torch.uint8)
            saver.resume()
            assert [tensor.data_ptr() for tensor in (kept, dropped)] == addresses
            assert (kept == 10).all() and (typed == 1.5).all() and (unrelated == 30).all()
            dropped.fill_(21)
            assert (dropped == 21).all()
            assert saver.get_cpu_backup(kept) is None
            """
        )
    )


def test_tags_pause_and_resume_one_by_one_and_regions_nest(run) -> None:  # type: ignore[no-untyped-def]
    expect_fine(
        run(
            """
            with saver.region(tag="weights", enable_cpu_backup=True):
                weights = torch.full((16 * MIB,), 1, dtype=torch.uint8)
                with saver.region(tag="cache"):
                    cache = torch.full((16 * MIB,), 2, dtype=torch.uint8)
                more = torch.full((16 * MIB,), 3, dtype=torch.uint8)
            full = resident()
            saver.pause("cache")
            assert resident() <= full - 12 * MIB
            assert weights[-1] == 1 and more[0] == 3
            saver.pause("weights")
            assert resident() <= full - 44 * MIB
            saver.resume("weights")
            assert (weights == 1).all() and (more == 3).all()
            saver.resume("cache")
            cache.fill_(4)
            saver.pause("nobody's")
            saver.pause(); saver.pause(); saver.resume(); saver.resume()
            assert (weights == 1).all()
            """
        )
    )


def test_a_process_that_pauses_everything(run) -> None:  # type: ignore[no-untyped-def]
    expect_fine(
        run(
            """
            before = resident()
            weights = torch.full((16 * MIB,), 42, dtype=torch.uint8)
            with saver.region(tag="grad_buffer", enable_cpu_backup=False):
                gradients = torch.full((16 * MIB,), 99, dtype=torch.uint8)
            saver.pause()
            assert resident() < before + MIB
            try:
                torch.empty((MIB,))
                raise SystemExit("there is no memory")
            except RuntimeError as error:
                assert "asleep" in str(error)
            with saver.disable():
                inside = torch.full((16 * MIB,), 53, dtype=torch.uint8)
                assert inside.float().mean() == 53
            del inside
            assert resident() < before + MIB
            saver.resume()
            assert (weights == 42).all()
            gradients.fill_(0)
            """,
            TMS_INIT_ENABLE="1",
            TMS_INIT_ENABLE_CPU_BACKUP="1",
        )
    )


def test_what_programs_set_and_what_there_is_not(run) -> None:  # type: ignore[no-untyped-def]
    expect_fine(
        run(
            """
            saver.hook_mode = "torch"
            saver.memory_margin_bytes = 1 << 30
            saver.retain_cpu_backup = True
            assert saver.enabled
            with configure_subprocess():
                pass
            for call, wrong in (
                (lambda: saver.region(enable_disk_backup=True).__enter__(), NotImplementedError),
                (lambda: saver.set_disk_backup_dir("/tmp"), NotImplementedError),
                (lambda: saver.region(cpu_backup_backend="mmap").__enter__(), ValueError),
                (lambda: saver.region(enable_cpu_backup=True, cpu_backup_backend="tape").__enter__(), ValueError),
            ):
                try:
                    call()
                except wrong:
                    continue
                raise SystemExit("no error")
            with saver.region(enable_cpu_backup=True, cpu_backup_backend="mmap"):
                torch.ones(3)
            """
        )
    )
