"""Splits of a Megatron-LM model over GPUs, and `stalloc advise` that names them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from stalloc import cli
from stalloc.tools.report import advice, figures, select, splits
from stalloc.tools.report.arguments import parse
from stalloc.tools.report.estimate import estimate

WORDS = shlex.split("""--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --bf16
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --vocab-size 32000 --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm
    --position-embedding-type rope --hidden-dropout 0 --use-distributed-optimizer""")
EXPERTS = [*WORDS, "--num-experts=8", "--moe-router-topk=2"]


@pytest.mark.parametrize("words", [WORDS, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("gpus", [1, 8, 24])
def test_every_split_is_possible(words: list[str], gpus: int) -> None:
    found = list(splits.possible(parse(words, 8, 0), gpus))
    assert found or gpus == 24, "24 do not divide a batch of 64, 32 heads or layers evenly"
    for split in found:
        config = split.config
        tensor, stages = config.tensor_model_parallel_size, config.pipeline_model_parallel_size
        assert config.world_size == gpus
        assert gpus == tensor * stages * config.data_parallel
        assert config.num_attention_heads % tensor == config.num_layers % stages == 0
        assert config.global_batch_size % (gpus // (tensor * stages * config.context_parallel_size)) == 0
    assert len({dataclasses.astuple(split.config) for split in found}) == len(found)


def test_the_rank_that_needs_most_decides() -> None:
    config = parse([*WORDS, "--pipeline-model-parallel-size=4"], 8, 0)
    ranks = [estimate(dataclasses.replace(config, rank=rank)).total for rank in range(8)]
    assert splits.evaluate(config).total == max(ranks)


def test_a_pipeline_waits_less_with_more_micro_batches() -> None:
    config = parse([*WORDS, "--pipeline-model-parallel-size=4"], 4, 0)
    # (p - 1) / (m + p - 1), Narayanan et al.
    assert splits.evaluate(config).bubble == pytest.approx(3 / (64 + 3))
    interleaved = parse([*WORDS, "--pipeline-model-parallel-size=4", "--num-layers-per-virtual-pipeline-stage=2"], 4, 0)
    assert splits.evaluate(interleaved).bubble == pytest.approx((3 / 4) / (64 + 3 / 4))


def test_worthwhile_splits_beat_each_other_in_something() -> None:
    kept = splits.worthwhile(list(splits.possible(parse(EXPERTS, 8, 0), 8)))
    assert len(kept) > 1
    for one, other in itertools.permutations(kept, 2):
        assert one.total > other.total or any(b < a for a, b in zip(one.order, other.order))


def test_advice_names_the_splits(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    trace = tmp_path / "a.trace"
    lines = ["stalloc-events 1", "= world_size 8"]
    lines += [f"a 0 {40 << 30} 0 0 0", "m iteration begin - 0 0 1", "m iteration begin - 0 1 2", "a 1 512 0 0 3"]
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={trace}"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)
    view = select.view_of(trace, None)
    view["rank"]["fingerprint"]["command_line"] = ["pretrain_gpt.py", *WORDS]
    rows = advice.advise(view, 0, figures.device_figures(view, 0))
    split = [row for row in rows if row["what"].startswith("split over 8 GPUs as ")]
    assert split
    now, better = splits.better(parse(WORDS, 8, 0))
    assert [row["saves_bytes"] for row in split] == [now.total - found.total for found in better[: len(split)]]
    assert not [row for row in rows if "ZeRO 1" in row["what"]], "the optimizer is distributed already"
    rows = advice.advise(view, 0, figures.device_figures(view, 0), gpus=16)
    assert any(row["what"].startswith("split over 16 GPUs as ") for row in rows)
    assert cli.main(["advise", str(trace), "--gpus", "16", "--json", "--", *WORDS]) == 0
    told = json.loads(capsys.readouterr().out)["devices"][0]["advice"]
    assert [row["what"] for row in told] == [row["what"] for row in rows]
