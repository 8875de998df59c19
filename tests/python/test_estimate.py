"""`stalloc estimate`: published parameter counts, the paper's activations, schedules, and the trace beside them."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exports import trace_of_text
from processes import HERE, ROOT, FakeProcess
from stalloc import cli
from stalloc.core.megatron_arguments import argument_names, arguments_of, read_settled
from stalloc.tools.report.arguments import EstimateError, parse
from stalloc.tools.report.comparison import compare
from stalloc.tools.report.configuration import Configuration
from stalloc.tools.report.estimate import estimate

GPT = ["--num-layers=8", "--hidden-size=1024", "--num-attention-heads=16", "--seq-length=2048", "--micro-batch-size=2"]
PLAIN = [*GPT, "--vocab-size=50304", "--bf16"]
LLAMA_7B = shlex.split("""--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008
    --seq-length 4096 --micro-batch-size 1 --vocab-size 32000 --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear
    --normalization RMSNorm --position-embedding-type rope --bf16 --hidden-dropout 0""")
MIXTRAL = shlex.split("""--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336
    --seq-length 4096 --micro-batch-size 1 --vocab-size 32000 --swiglu
    --untie-embeddings-and-output-weights --disable-bias-linear
    --normalization RMSNorm --position-embedding-type rope --bf16 --num-experts 8 --moe-router-topk 2
    --group-query-attention --num-query-groups 8""")
GPT2_SMALL = shlex.split("""--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024
    --micro-batch-size 1 --vocab-size 50257""")


def of(words: list[str], world_size: int = 1, rank: int = 0) -> Configuration:
    return parse(words, world_size, rank)


@pytest.mark.parametrize(
    ("words", "published"),
    # GPT-2's 124,439,808 with the vocabulary padded from 50257 to 50304 rows, as Megatron pads it.
    [(LLAMA_7B, 6_738_415_616), (MIXTRAL, 46_702_792_704), (GPT2_SMALL, 124_439_808 + 47 * 768)],
    ids=["llama-7b", "mixtral-8x7b", "gpt2"],
)
def test_parameters_are_the_published_ones(words: list[str], published: int) -> None:
    assert estimate(of(words)).parameters == published


@pytest.mark.parametrize(("tensor", "stages"), [(2, 1), (1, 2), (4, 2)])
def test_split_models_add_up(tensor: int, stages: int) -> None:
    split = [f"--tensor-model-parallel-size={tensor}", f"--pipeline-model-parallel-size={stages}"]
    world = tensor * stages
    ranks = [estimate(of([*LLAMA_7B, *split], world, rank)).parameters for rank in range(world)]
    norms = 4096 * (2 * 32 + 1)  # whole on each rank of a tensor group
    padding = 2 * 4096 * (-32000 % (128 * tensor))
    assert sum(ranks) == 6_738_415_616 + (tensor - 1) * norms + padding


def test_mixed_precision_keeps_eighteen_bytes_a_parameter() -> None:
    result = estimate(of(PLAIN))
    assert result.weights + result.gradients + result.optimizer_state == 18 * result.parameters


def test_the_distributed_optimizer_shares_its_state() -> None:
    alone, shared = (estimate(of([*PLAIN, *more], 8)) for more in ([], ["--use-distributed-optimizer"]))
    assert shared.optimizer_state == alone.optimizer_state // 8
    assert shared.gradients == alone.gradients


def test_activations_are_the_paper_s() -> None:
    tokens, hidden, heads = 2 * 2048, 1024, 16
    layer = tokens * (34 * hidden + 4 * heads)
    assert estimate(of(PLAIN)).activations == 8 * layer
    unfused = tokens * (34 * hidden + 5 * heads * 2048)
    assert estimate(of([*PLAIN, "--attention-backend=unfused"])).activations == 8 * unfused
    split = ["--tensor-model-parallel-size=4"]
    assert estimate(of([*PLAIN, *split], 4)).activations == 8 * tokens * (10 * hidden + (24 * hidden + 4 * heads) // 4)
    assert estimate(of([*PLAIN, *split, "--sequence-parallel"], 4)).activations == 8 * layer // 4


def test_recomputation_keeps_inputs_and_one_layer() -> None:
    tokens, hidden, heads = 2 * 2048, 1024, 16
    layer = tokens * (34 * hidden + 4 * heads)
    full = ["--recompute-granularity=full"]
    uniform = estimate(of([*PLAIN, *full, "--recompute-method=uniform"])).activations
    assert uniform == 8 * 2 * hidden * tokens + layer
    # Those that were kept are gone when the first one is made again.
    block = estimate(of([*PLAIN, *full, "--recompute-method=block", "--recompute-num-layers=4"])).activations
    assert block == 4 * 2 * hidden * tokens + 4 * layer


@pytest.mark.parametrize(
    ("words", "rank", "layers"),
    [
        ([], 0, 4 * 2),
        ([], 1, 4 * 1),
        (["--num-layers-per-virtual-pipeline-stage=2"], 0, 2 * 5),
        (["--num-layers-per-virtual-pipeline-stage=2"], 1, 2 * 3),
        (["--global-batch-size=2"], 0, 4 * 1),
    ],
    ids=["first", "last", "interleaved first", "interleaved last", "one micro-batch"],
)
def test_schedules_hold_so_many_layers(words: list[str], rank: int, layers: int) -> None:
    pipeline = [*PLAIN, "--pipeline-model-parallel-size=2", "--global-batch-size=32"]
    assert estimate(of([*pipeline, *words], 2, rank)).layers_in_flight == layers


def test_logits_are_the_last_stage_s() -> None:
    pipeline = [*PLAIN, "--pipeline-model-parallel-size=2"]
    assert estimate(of(pipeline, 2, 0)).logits == 0
    assert estimate(of(pipeline, 2, 1)).logits == 4096 * 50304 * 6


# The recorded runs of bench/corpus: the workloads of bench/megatron, with the inner width that their blocks have
# (44 MiB of bf16 for both halves of a gated unit of 2048 inputs). GiB.
RECORDED = """--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 --vocab-size
    32000 --bf16 --ffn-hidden-size 5632 --use-distributed-optimizer --disable-bias-linear --swiglu
    --position-embedding-type rope --normalization RMSNorm --untie-embeddings-and-output-weights
    --transformer-impl local"""
PIPELINE = (
    "--num-layers 24 --global-batch-size 32 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4"
)
RECOMPUTED = "--recompute-granularity full --recompute-method block --recompute-num-layers 1"
EXPERTS = "--num-layers 8 --global-batch-size 16 --expert-model-parallel-size 2 --num-experts 8 --moe-router-topk 2"


@pytest.mark.parametrize(
    ("options", "rank", "measured"),
    [
        (PIPELINE, 0, 37.18),
        (PIPELINE, 1, 32.14),
        (f"{PIPELINE} {RECOMPUTED}", 0, 28.96),
        (f"{PIPELINE} {RECOMPUTED}", 1, 25.73),
        (EXPERTS, 0, 30.86),
    ],
    ids=["vpp rank 0", "vpp rank 1", "recomputed rank 0", "recomputed rank 1", "experts"],
)
def test_recorded_peaks_are_estimated_within_five_percent(options: str, rank: int, measured: float) -> None:
    result = estimate(of(shlex.split(f"{RECORDED} {options}"), 2, rank))
    assert result.total == pytest.approx(measured * 2**30, rel=0.05 if options == EXPERTS else 0.01)


MEASURED = (ROOT / "bench" / "results" / "h200-2026-11-25", ROOT / "tests" / "python" / "data")


def measured_run(round_name: str, workload: str) -> dict[str, Any]:
    name = f"round_{round_name}.json"
    document = json.loads(next(path for folder in MEASURED if (path := folder / name).is_file()).read_text())
    run: dict[str, Any] = document["workloads"][workload]
    return run


@pytest.mark.parametrize(
    ("round_name", "workload", "share"),
    [
        ("pp2-vpp4_tp2", "pp2-vpp4", 0.01),
        ("pp2-vpp4-recompute_pp2-varlen", "pp2-vpp4-recompute", 0.01),
        ("pp2-vpp4_tp2", "tp2", 0.001),
        ("ep2-moe_dp2", "dp2", 0.001),
        ("ep2-moe_dp2", "ep2-moe", 0.05),
    ],
)
def test_measured_runs_are_estimated(round_name: str, workload: str, share: float) -> None:
    run = measured_run(round_name, workload)
    native = [row for row in run["rows"] if row["mode"] == "native"]
    assert len(native) == 2
    for row in native:
        estimated = estimate(of(run["workload"], len(native), row["rank"])).total
        assert estimated == pytest.approx(row["live_bytes"], rel=share)


# What rank 0 has at its peak in the traces of the two dense runs, class by class (as `stalloc estimate --json` tells
# it; the traces are too large for the repository). Bytes. Not estimated: dropout masks of embeddings and statistics of
# norms (activations), sums of the loss (temporaries), a buffer of NCCL's.
AT_THE_PEAK = {
    "tp2": {"state": 3_280_324_608, "activations": 21_606_646_784, "temporaries": 262_572_032, "buffers": 336_070_144},
    "dp2": {"state": 4_373_164_032, "activations": 20_578_145_280, "temporaries": 262_326_272, "buffers": 336_070_144},
}


@pytest.mark.parametrize(("round_name", "workload"), [("pp2-vpp4_tp2", "tp2"), ("ep2-moe_dp2", "dp2")])
def test_dense_runs_are_estimated_class_by_class(round_name: str, workload: str) -> None:
    run = measured_run(round_name, workload)
    found = estimate(of(run["workload"], 2, 0))
    measured = AT_THE_PEAK[workload]
    assert sum(measured.values()) == run["rows"][0]["live_bytes"]
    assert found.peak.where == "the loss"
    assert found.state == measured["state"]
    assert 0 <= measured["activations"] - (found.activations + found.peak.activations) <= 10 << 20
    assert 0 <= measured["temporaries"] - found.peak.temporaries <= 1 << 20
    assert 0 <= measured["buffers"] - found.buffers <= 1 << 20


# One layer of 16 heads, hidden 1024, 2 x 2048 tokens: a matrix of scores has 256 MiB. What the recorded pipelines of
# bench/megatron hold in the backward pass of softmax: three such matrices; gone are the dropped-out scores (256), their
# mask (128), the context (8), a mask (4), norm's input (8) and output (8), and the MLP's 42, 21 and 4 MiB.
def test_the_backward_pass_of_softmax_has_three_matrices() -> None:
    words = [*PLAIN, "--swiglu", "--ffn-hidden-size=2688", "--disable-bias-linear", "--transformer-impl=local"]
    peak = estimate(of([*words, "--position-embedding-type=rope", "--global-batch-size=8",
                        "--pipeline-model-parallel-size=2"], 2, 0)).peak  # fmt: skip
    assert "softmax" in peak.where
    assert peak.temporaries == (3 * 256 + 8) << 20
    assert peak.activations == -(256 + 128 + 24 + 8 + 4 + 8 + 8 + 42 + 21 + 4) << 20
    without = estimate(of([*words, "--attention-dropout=0"])).peak
    assert without.temporaries <= peak.temporaries


def test_softmax_in_fp32_keeps_its_output_in_fp32() -> None:
    words = [*PLAIN, "--attention-backend=unfused", "--attention-dropout=0"]
    half, single = (estimate(of([*words, *more])) for more in ([], ["--attention-softmax-in-fp32"]))
    scores = 2 * 2 * 16 * 2048 * 2048
    assert single.activations - half.activations == 8 * 2 * scores


def test_local_layers_have_matrices_of_scores() -> None:
    local, fused = estimate(of([*PLAIN, "--transformer-impl=local"])), estimate(of(PLAIN))
    assert local.activations > fused.activations
    assert local.buffers - fused.buffers == 2 * 2 * 16 * 2048 * 2048
    assert fused.peak.where == "the loss"


@pytest.mark.parametrize(
    ("name", "options"),
    [("megatron_vpp_rank0", PIPELINE), ("megatron_moe_ep2_rank0", EXPERTS)],
    ids=["vpp", "experts"],
)
def test_the_recordings_of_the_repository_have_these_peaks(name: str, options: str) -> None:
    steps = []
    with gzip.open(ROOT / "bench" / "corpus" / f"{name}.txt.gz", "rt") as file:
        for line in file:
            _, size, allocated, freed = map(int, line.split())
            rounded = max(512, -(-size // 512) * 512)
            steps += [(allocated, rounded), (freed, -rounded)] if freed >= 0 else [(allocated, rounded)]
    live = itertools.accumulate(change for _, change in sorted(steps))
    assert estimate(of(shlex.split(f"{RECORDED} {options}"), 2, 0)).total == pytest.approx(max(live), rel=0.05)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(EstimateError, match="no --num-layers, --hidden-size"):
        of(["train.py", "--lr", "1e-4"])
    with pytest.raises(EstimateError, match="--vocab-size"):
        of(GPT)


def test_stands_beside_the_trace(build: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    trace = tmp_path / "a.trace"
    events = ["stalloc-events 1", "a 0 1000448 0 0 0", "m iteration begin - 0 0 1", "m microbatch begin F 0 0 2"]
    events += ["a 1 512 0 0 3", "f 1 4", "m iteration begin - 0 1 5", "m iteration begin - 0 2 6"]
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={trace}"]
    subprocess.run(command, input="\n".join(events) + "\n", text=True, check=True, capture_output=True)
    assert cli.main(["estimate", str(trace), "--json", "--", *PLAIN]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["weights, gradients and state"]["measured"] == 1000448
    assert rows["weights"]["measured"] is None, "without names"
    parts = ("weights, gradients and state", "activations", "temporaries", "buffers and the rest")
    for kind in ("measured", "estimate"):
        assert sum(rows[part][kind] for part in parts) == rows["peak"][kind]
    assert rows["peak"]["measured"] == 1000960
    assert rows["peak"]["estimate"] == estimate(of(PLAIN)).total
    assert found["configuration"] == dataclasses.asdict(of(PLAIN))
    assert cli.main(["estimate", str(trace), "--", *PLAIN]) == 0
    assert "measured at the peak" in capsys.readouterr().out
    assert cli.main(["estimate", str(trace)]) == 1
    assert "it is for Megatron-LM's configurations, and the command line has no --num-layers" in capsys.readouterr().err
    assert cli.main(["estimate", str(trace), "--", *PLAIN[2:]]) == 1
    assert "estimate: the command line has no --num-layers" in capsys.readouterr().err


def test_a_trace_of_a_cpu_has_no_workspaces_of_cublas(
    build: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    words, found = [*PLAIN, "--transformer-impl=local"], {}
    for device in (-1, 0):
        trace = trace_of_text(build, f"stalloc-events 1\na 0 1000448 {device} 0 0\n", tmp_path / f"{device}.trace")
        assert cli.main(["estimate", str(trace), "--json", "--", *words]) == 0
        found[device] = json.loads(capsys.readouterr().out)
    rows = {device: {row["name"]: row for row in each["rows"]} for device, each in found.items()}
    buffers = {device: each["buffers and the rest"] for device, each in rows.items()}
    assert buffers[0]["estimate"] - buffers[-1]["estimate"] == 64 << 20
    assert ("cuBLAS" in buffers[0]["why"], buffers[-1]["why"]) == (True, "one matrix of scores")
    masks = {
        device: sum(row["kept"] for row in each["operations"] if "dropout" in row["name"])
        for device, each in found.items()
    }
    assert masks[-1] == 2 * masks[0], "of bf16, not of one byte"
    softmax = {
        device: next(row for row in each["operations"] if row["name"] == "softmax") for device, each in found.items()
    }
    assert softmax[-1]["backward"] - softmax[0]["backward"] == softmax[0]["kept"], "one matrix of scores more"


def test_what_megatron_settled_is_beside_the_trace(fake: FakeProcess) -> None:
    settled = {
        **{"num_layers": 8, "hidden_size": 1024, "num_attention_heads": 16, "seq_length": 2048, "micro_batch_size": 2},
        **{"vocab_size": 50257, "padded_vocab_size": 50304, "bf16": True, "add_bias_linear": True, "num_experts": None},
        **{"group_query_attention": False, "num_query_groups": 1, "transformer_impl": "transformer_engine"},
    }
    fake.environment["PYTHONPATH"] += f":{HERE / 'fake_megatron'}"
    (fake.directory / "trace").mkdir()
    (fake.directory / "pretrain.py").write_text(f"""
import argparse, enum, sys, types
variables = sys.modules["megatron.training.global_vars"] = types.ModuleType("megatron.training.global_vars")
backend = enum.Enum("AttnBackend", ["auto"]).auto
variables.get_args = lambda: argparse.Namespace(**{settled}, attention_backend=backend, wandb_key="not to be told")
from megatron.training import pretrain
from megatron.core.optimizer.optimizer import FP32Optimizer
from megatron.core.tensor import Tensor
pretrain(lambda *_: Tensor(), [[]], FP32Optimizer(), 1)
""")
    done = fake.python("-m", "stalloc", "run", "pretrain.py", STALLOC_MODE="Trace", RANK="7", WORLD_SIZE="8")
    assert (done.code, done.err) == (0, "")
    found = read_settled(fake.directory / "trace" / "rank00007.trace")
    assert found == {**settled, "attention_backend": "auto"}
    assert parse([], 8, 7, found) == dataclasses.replace(of(PLAIN, 8, 7), vocab_size=50304)
    assert parse(["--num-layers=4", "--vocab-size=32000"], 8, 7, found).num_layers == 4


def test_a_traced_directory_needs_no_options(build: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("STALLOC_LIB_PATH", str(build))
    trace = tmp_path / "trace" / "rank00000.trace"
    events = "stalloc-events 1\na 0 1000448 0 0 0\nm iteration begin - 0 0 1\na 1 512 0 0 3\nf 1 4\n"
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={trace}"]
    subprocess.run(command, input=events, text=True, check=True, capture_output=True)
    settled = {name: value for name, value in dataclasses.asdict(of(PLAIN)).items() if name in argument_names()}
    arguments_of(trace).write_text(json.dumps({**settled, "bf16": True, "num_experts": None}))
    assert cli.main(["estimate", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configuration"] == dataclasses.asdict(of(PLAIN))
    assert cli.main(["estimate", str(tmp_path), "--json", "--", "--num-layers", "4"]) == 0
    assert json.loads(capsys.readouterr().out)["configuration"]["num_layers"] == 4
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["views"][0]["estimate"][-1]["estimate"] == estimate(of(PLAIN)).total
    arguments_of(trace).write_text("[]")
    assert cli.main(["estimate", str(tmp_path)]) == 1
    assert "rank00000.megatron.json: expected an object, found list" in capsys.readouterr().err


def test_a_layer_is_told_operation_by_operation(capsys: Any) -> None:
    words = [*PLAIN, "--attention-backend=unfused"]
    assert cli.main(["estimate", "--json", "--", *words]) == 0
    found = json.loads(capsys.readouterr().out)["operations"]
    stream, scores = 2 * 2 * 2048 * 1024, 2 * 2 * 16 * 2048 * 2048
    kept = {row["name"]: row["kept"] for row in found}
    assert 8 * sum(kept.values()) == estimate(of(words)).activations
    assert (kept["norm of MLP"], kept["softmax"], kept["dropout of scores"]) == (stream, scores, scores / 2)
    needed = {row["name"]: row["backward"] for row in found}
    assert needed["softmax"] == stream + 3 * scores
    # Gradients of the residual, of its output and of its input; then its weight's.
    assert needed["second of MLP"] == stream + stream + 4 * stream + 2 * 1024 * 4096
    assert cli.main(["estimate", "--operations", "--", *words]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^softmax +256\.00 MiB +776\.00 MiB$", told, re.M)


def test_full_precision_has_no_second_copies() -> None:
    half, full = of([*GPT, "--vocab-size=50304", "--bf16"]), of([*GPT, "--vocab-size=50304"])
    tokens, hidden, heads = 2 * 2048, 1024, 16
    masks = 2 * hidden
    assert estimate(full).activations == 8 * tokens * (2 * (34 * hidden - masks) + masks + 4 * heads)
    assert estimate(full).state == 16 * estimate(half).parameters
    assert estimate(full).logits == tokens * 50304 * 4


def test_named_state_is_compared_class_by_class() -> None:
    config = of(PLAIN)
    rows = [  # class, role, bytes, count, phase
        (0, "parameter", 1000, 2, "set-up"),
        (0, "", 50, 1, "set-up"),  # a buffer without a name: no weight
        (1, "gradient", 300, 1, "iter 0, B 0"),
        (2, "optimizer state", 70, 1, "iter 0, optimizer"),
        (3, "", 9000, 1, "iter 1, F 0"),
        (4, "", 10, 1, "iter 1, between"),
        (4, "", 6, 1, "iter 1, B 0"),
    ]
    classes = ["weights", "gradients", "optimizer state", "activations", "temporaries", "dynamic", "other"]
    by_class = dict.fromkeys(classes, 0)
    for kind, _, size, count, _ in rows:
        by_class[classes[kind]] += size * count
    peak: dict[str, Any] = {"live_bytes": sum(by_class.values())}
    for place, column in enumerate(("class", "tensor", "bytes", "count", "phase")):
        peak[column] = [row[place] for row in rows]
    view = {
        "classes": classes,
        "devices": [{"peak": peak}],
        "rank": {"devices": [{"peak": {"by_class": by_class, "live_bytes": peak["live_bytes"]}}]},
    }
    found = {row["name"]: row for row in compare(config, estimate(config), view)}
    assert {name: row["measured"] for name, row in found.items()} == {
        "weights": 2000,
        "gradients": 300,
        "optimizer state": 70,
        "weights, gradients and state": 2370,
        "activations": 9000,
        "temporaries": 16,
        "buffers and the rest": 50,
        "peak": 2370 + 9000 + 16 + 50,
    }
    assert "10 B allocated between passes" in found["temporaries"]["why"]
    assert "8 layers in flight" in found["activations"]["why"]
