"""What Megatron prints of memory, with ours beside it."""

from __future__ import annotations

from megatron_scripts import Megatron


def test_report_memory_has_our_line_below_torchs(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 1, save_at=[0])", STALLOC_MODE="Alloc")
    theirs, ours, saved = done.out.splitlines()
    assert theirs == "[Rank 0] (before save_checkpoint for iteration 0) memory (MB) | allocated: 1.00"
    assert ours == (
        "[Rank 0] (before save_checkpoint for iteration 0) stalloc memory (MB) | live: 0.00 | max live: 2048.00 | "
        "arena: 0.00 | max held: 4096.00 | planned: 9 of 10 requests"
    )
    assert saved == "saved 0"


def test_report_memory_prints_ours_on_the_first_replica_only(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 1, save_at=[0])", FAKE_DATA_PARALLEL_RANK="1")
    assert "stalloc memory" not in done.out


def test_report_memory_survives_an_allocator_without_figures(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 2, save_at=[0, 1])", FAKE_PLUGGABLE="1")
    assert done.out.count("stalloc memory (MB)") == 2
    assert done.err.count("report_memory has no figures of torch's") == 1


def test_mode_torch_reports_each_of_megatrons_iterations(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 2, start=10)", STALLOC_MODE="Torch")
    assert [line.split(":")[0] for line in done.err.splitlines()] == [
        "[stalloc] rank 0 iteration 10",
        "[stalloc] rank 0 iteration 11",
    ]
