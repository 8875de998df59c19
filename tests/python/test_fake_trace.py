"""Traces of fake tensors: no device, no memory, and the peak, classes and names of a run that has both."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any, Optional

import pytest

from processes import SCRIPTS, Finished, Training, run_python, run_with_torch
from stalloc import cli
from stalloc.train.fake.blocks import Blocks
from stalloc.train.fake.unknown import parse_assumptions

SCRIPT = str(SCRIPTS / "fake_training.py")
GIB = 1 << 30
# Of cuBLAS, two threads'; they stay from the set-up on, as weights do where no micro-batch is marked.
WORKSPACES = 2 * (32 << 20)


def fake_run(training: Training, *arguments: str) -> Finished:
    environment = training.environment(None)
    del environment["STALLOC_DEVICE"]
    return run_with_torch("-m", "stalloc", "run", "--fake", *arguments, environment=environment, cwd=training.directory)


def peak(training: Training) -> dict[str, Any]:
    result: dict[str, Any] = training.plan()["ranks"][0]["report"]["devices"][0]["peak"]
    return result


def facts(training: Training) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((training.info / "trace" / "rank00000.fake.json").read_text())
    return result


# Of runs --------------------------------------------------------------------------------------------------------------


def test_a_fake_cpu_trace_has_the_peak_of_a_real_one_and_its_plan_is_safe(
    planned: Training, training: Training
) -> None:
    fake_run(training, "--device", "cpu", str(SCRIPTS / "train.py"), "--iterations", "4").good()
    plan = training.plan()["ranks"][0]["report"]
    assert plan["fingerprint"]["trace_mode"] == "fake"
    real = planned.plan()["ranks"][0]["report"]["devices"][0]["peak"]
    for key in ("live_bytes", "phase", "by_class", "by_phase"):
        assert plan["devices"][0]["peak"][key] == real[key], key

    plain = training.run(None, "--iterations", "4")
    served = training.run("Alloc", "--iterations", "4")
    assert served["losses"] == plain["losses"]
    steady = training.summary()["devices"][0]["steady"]
    assert steady["hits"] > steady["requests"] / 2


@pytest.mark.parametrize(
    ("variable", "expected"), [(None, 32 << 20), (":4096:2:16:8", (4096 * 2 + 16 * 8) << 10), ("none", 32 << 20)]
)
def test_cublas_has_a_workspace_for_each_thread(training: Training, variable: Optional[str], expected: int) -> None:
    """One from the first product on, another from the first backward pass on; a GPU of Hopper's generation."""
    program = training.directory / "program.py"
    program.write_text(
        textwrap.dedent("""
            import torch
            import stalloc

            torch.Generator(device="cuda").manual_seed(3)
            assert torch.Generator(device="cuda").device.type == "cuda"
            assert "USE_MKL" in torch.__config__.show()
            layer = torch.nn.Linear(64, 64, device="cuda")
            for _ in range(3):
                layer(torch.randn(8, 64, device="cuda")).sum().backward()
                layer.zero_grad()
                stalloc.iteration()
        """)
    )
    environment = training.environment(None)
    del environment["STALLOC_DEVICE"]
    environment.pop("CUBLAS_WORKSPACE_CONFIG", None)
    environment |= {} if variable is None else {"CUBLAS_WORKSPACE_CONFIG": variable}
    run_with_torch(
        "-m", "stalloc", "run", "--fake", str(program), environment=environment, cwd=training.directory
    ).good()
    live = peak(training)["live_bytes"]
    with_bias = 2 * expected + (1 << 20)  # cuBLASLt's own, of the forward pass
    assert with_bias < live < with_bias + (1 << 19)


def test_a_model_larger_than_any_machine_is_traced_and_named(training: Training) -> None:
    hidden = 200_000_000
    done = fake_run(training, SCRIPT, "--hidden", str(hidden), "--iterations", "100000").good()
    assert "complete after 4 iterations; the program ends" in done.err
    found = peak(training)
    weights = 4 * (2 * 64 * hidden + hidden + 64)
    # Weights, gradients and two moments, each a block rounded to 512 bytes of four tensors.
    assert found["by_class"]["weights"] == pytest.approx(
        weights + WORKSPACES + (1 << 20), abs=4 * 512
    )  # 1 MiB: cuBLASLt's
    assert found["by_class"]["optimizer state"] == pytest.approx(2 * weights, abs=12 * 512)
    assert found["live_bytes"] > 4 * weights > 300 * GIB
    assert facts(training)["values_read"] == []
    # What takes how long is not known: no cost is a share of the run's time.
    command = ("-m", "stalloc", "advise", str(training.info), "--json")
    advice = run_python(*command, environment=training.environment(None))
    assert "offload the optimizer state" in advice.out
    assert "%" not in advice.out


@pytest.mark.parametrize(
    ("flag", "operator", "way_out"),
    [("--branch", ".item()", "--assume bool=VALUE"), ("--mask", "aten.nonzero.default", "--assume nonzero=SHARE")],
)
def test_what_depends_on_values_ends_in_one_line(training: Training, flag: str, operator: str, way_out: str) -> None:
    done = fake_run(training, SCRIPT, flag)
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if not line.startswith("[stalloc]")]
    assert len(lines) == 1, done.err
    assert "fake_training.py:" in lines[0]
    assert operator in lines[0]
    assert way_out in lines[0]


def test_assumptions_stand_in_for_values_and_stand_beside_the_trace(training: Training) -> None:
    fake_run(training, "--assume", "nonzero=1/2,bool=0", SCRIPT, "--mask", "--branch", "--autocast").good()
    found = facts(training)
    assert found["assumptions"] == {"float": 1.0, "bool": False, "nonzero": 0.5}
    assert {read["operator"]: read["times"] for read in found["values_read"]} == {
        ".item()": 4,
        "aten.nonzero.default": 4,
    }


def test_a_block_of_a_program_is_traced_and_the_rest_is_real(training: Training) -> None:
    program = f"""
        import stalloc, torch
        with stalloc.fake_trace({str(training.info)!r}) as trace:
            a, b = torch.nn.Embedding(1000, 512), torch.nn.Linear(512, 1000, bias=False)
            b.weight = a.weight
            model = torch.nn.Sequential(a, b).cuda()
            assert b.weight is a.weight  # tied parameters stay one
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
            for step in range(3):
                stalloc.iteration(step)
                model(torch.zeros(8, dtype=torch.long).cuda()).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert torch.cuda.memory_allocated() >= 2 * 4 * 512000
            del model, optimizer, a, b
        assert trace.is_file()
        assert not torch.cuda.is_available()
        assert (torch.ones(3) * 2).sum().item() == 6
    """
    environment = training.environment(None)
    run_python("-c", textwrap.dedent(program), environment=environment, cwd=training.directory).good()
    assert peak(training)["by_class"]["weights"] == 4 * 512000


def test_blocks_are_of_the_stream_that_their_thread_is_on(training: Training) -> None:
    program = f"""
        import stalloc, threading, torch
        with stalloc.fake_trace({str(training.info)!r}):
            side = torch.cuda.Stream()
            kept = [torch.empty(100, dtype=torch.uint8, device="cuda")]
            with torch.cuda.stream(side):
                assert torch.cuda.current_stream() is side
                kept.append(torch.empty(200, dtype=torch.uint8, device="cuda"))
                with torch.cuda.stream(None):
                    kept.append(torch.empty(300, dtype=torch.uint8, device="cuda"))
                other = threading.Thread(target=lambda: kept.append(torch.empty(400, dtype=torch.uint8, device="cuda")))
                other.start()
                other.join()
            assert torch.cuda.current_stream() is torch.cuda.default_stream()
            kept[0].record_stream(side)
            torch.cuda.set_stream(side)
            kept.append(torch.empty(500, dtype=torch.uint8, device="cuda"))
            del kept
    """
    environment = training.environment(None)
    run_python("-c", textwrap.dedent(program), environment=environment, cwd=training.directory).good()
    told = run_python(
        "-m", "stalloc", "dump", str(training.info / "trace" / "rank00000.trace"), environment=environment
    )
    events = [tuple(map(int, line.split())) for line in told.out.splitlines() if line[:2] in ("1 ", "2 ")]
    assert events == [(1, 0, 100, 0), (1, 1, 200, 1), (1, 2, 300, 1), (1, 3, 400, 0), (2, 0, 100, 1), (1, 4, 500, 1)]


@pytest.mark.parametrize("replicated", [False, True])
def test_one_rank_of_several_is_traced_alone(training: Training, replicated: bool) -> None:
    environment = {**training.environment(None), "RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    del environment["STALLOC_DEVICE"]
    words = ["-m", "stalloc", "run", "--fake", str(SCRIPTS / "fake_sharded.py"), *["--replicated"] * replicated]
    done = run_python(*words, environment=environment)
    if replicated:
        assert done.code == 1
        assert "fake_sharded.py:20: DistributedDataParallel times itself" in done.err
        return
    assert done.code == 0, done.err
    device = training.plan()["ranks"][0]["report"]["devices"][0]
    assert len([stream for stream in device["streams"] if not stream["main"]]) >= 2, "gathers and reductions"
    found = device["peak"]
    shards = 6 * 1024 * 1024 * 4 // 8
    assert found["by_class"]["weights"] == shards + WORKSPACES
    assert found["by_class"]["optimizer state"] == 2 * shards + 6 * 512  # and the steps of six parameters
    # Beside weights, gradients and state a few layers are whole at a time, and never the model.
    assert 4 * shards < found["live_bytes"] - WORKSPACES < 4 * shards + 5 * (1024 * 1024 * 4)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--assume", "int=1"), "--assume is for --fake"),
        (("--fake", "--mode", "Alloc"), "--fake is for --mode Trace"),
        (("--fake", "--assume", "nonzero=2"), "assumptions are float, int, bool, nonzero, equal and unique"),
    ],
)
def test_usage(
    options: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLOC_MODE", "Torch")  # the command sets it, for this process
    with pytest.raises(SystemExit) as left:
        cli.main(["run", *options, SCRIPT])
    assert left.value.code == 2
    assert error in capsys.readouterr().err


VALUES = str(SCRIPTS / "fake_values.py")


def test_values_that_are_known_copies_threads_and_histories_work_as_on_a_device(training: Training) -> None:
    done = fake_run(training, VALUES).good()
    assert "complete after 4 iterations" in done.err
    assert "PyTorch records no memory history in a fake run: stalloc export -f snapshot makes one" in done.err
    assert "a fake run dumps no memory snapshot" in done.err
    assert facts(training)["iterations"] == 4
    assert facts(training)["values_read"] == []
    assert not (training.directory / "never.pickle").exists()


_CONVOLUTIONS = """
import torch
from torch import nn
flat = nn.Sequential(nn.Conv2d(3, 40, 7, 2, 3), nn.Conv2d(40, 40, 3, 1, 1, groups=40), nn.Conv2d(40, 24, 1, 2))
deep = nn.Sequential(nn.Conv3d(3, 32, 3, 1, 1), nn.Conv3d(32, 20, 3, 1, 1))
optimizer = torch.optim.SGD([*flat.parameters(), *deep.parameters()], 0.1)
for _ in range(2):
    (flat(torch.randn(4, 3, 64, 64)).mean() + deep(torch.randn(2, 3, 8, 32, 32)).mean()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_convolutions_of_the_cpu_take_inside_what_their_kernels_do(training: Training) -> None:
    program = training.directory / "convolutions.py"
    program.write_text(_CONVOLUTIONS)
    fake_run(training, "--device", "cpu", str(program)).good()
    fake = peak(training)
    shutil.rmtree(training.info)
    training.start_plain("Trace", "-m", "stalloc", "run", str(program)).good()
    assert fake["live_bytes"] == pytest.approx(peak(training)["live_bytes"], rel=0.005)


# A detector: candidates are sifted by their values, sorted into levels, and some of them are drawn.
_DETECTOR = """
import torch
operators = torch.library.Library("torchvision", "DEF")
operators.define("nms(Tensor boxes, Tensor scores, float threshold) -> Tensor")
torch.library.register_fake("torchvision::nms", lambda boxes, *_: boxes.new_empty(
    torch.library.get_ctx().new_dynamic_size(), dtype=torch.long))
weight = torch.zeros(4, 4, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(4):
    boxes = torch.randn(1000, 4) @ weight
    kept = torch.ops.torchvision.nms(boxes, boxes[:, 0], 0.5)
    levels = boxes[kept, 1].to(torch.long)
    of_level = torch.where(levels == 1)[0]
    some, others = torch.zeros_like(levels, dtype=torch.uint8), torch.zeros_like(levels, dtype=torch.uint8)
    some[kept[:64]] = 1
    others[kept[64:96]] = 1
    drawn = torch.where(some | others)[0]
    shapes = (len(kept), len(of_level), len(drawn), len(torch.unique(levels)))
    boxes[drawn].sum().backward()
    optimizer.step()
print(shapes)
"""


def test_what_detectors_ask_of_values_is_assumed_or_known_by_count(training: Training) -> None:
    program = training.directory / "detector.py"
    program.write_text(_DETECTOR)
    refused = fake_run(training, "--device", "cpu", "--assume", "nonzero=1/2,equal=1/4", str(program))
    assert refused.code == 1
    assert "aten._unique2.default" in refused.err
    assert "--assume unique=N" in refused.err
    words = ("--device", "cpu", "--assume", "nonzero=1/2,equal=1/4,unique=3", str(program))
    environment = {**training.environment(None), "STALLOC_TRACE_STEPS": "9"}
    done = run_with_torch("-m", "stalloc", "run", "--fake", *words, environment=environment, cwd=training.directory)
    assert done.good().out.splitlines()[-1] == "(500, 125, 96, 3)"
    assert facts(training)["assumptions"] == {"float": 1.0, "nonzero": 0.5, "equal": 0.25, "unique": 3}


def test_sparse_gradients_are_refused_in_one_line(training: Training) -> None:
    done = fake_run(training, VALUES, "--sparse")
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if not line.startswith("[stalloc]")]
    assert len(lines) == 1, done.err
    assert "fake_values.py:" in lines[0]
    assert "a sparse tensor has as many bytes as its values say" in lines[0]
    assert "sparse=False" in lines[0]


def test_a_program_on_the_cpu_is_told_how_to_trace_it(training: Training) -> None:
    done = fake_run(training, VALUES, "--on-the-cpu")
    assert done.code == 1
    assert "stalloc: the program has no tensor on the GPU, so its trace is empty: --device cpu traces" in done.err


def test_a_trace_that_stops_in_its_first_iteration_answers_no_whatif(training: Training) -> None:
    done = fake_run(training, VALUES, "--stop")
    assert done.code == 1
    assert "the program ended in its first iteration: its trace can neither be planned nor scaled" in done.err
    assert facts(training)["iterations"] == 0
    command = ("-m", "stalloc", "whatif", str(training.info), "--memory", "80G")
    asked = run_python(*command, environment=training.environment(None))
    assert (asked.code, asked.out) == (1, "")
    assert "no iteration that ran to its end, so that what grows with the micro-batch is not known" in asked.err


def test_transformers_goes_by_values_and_not_by_what_a_compiler_may_know(training: Training, tmp_path: Path) -> None:
    """It asks whether a tensor is a fake one, and then makes masks that no eager run would have."""
    package = tmp_path / "transformers" / "utils"
    package.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from transformers.utils.import_utils import is_fake_tensor\n")
    (package / "import_utils.py").write_text("def is_fake_tensor(x): return True\n")
    program = """
        import sys, torch
        sys.path.insert(0, sys.argv[1])
        import stalloc
        with stalloc.fake_trace(sys.argv[2]):
            from transformers.utils import import_utils, is_fake_tensor
            assert not is_fake_tensor(torch.ones(3, device="cuda"))
        assert import_utils.is_fake_tensor(1)
    """
    words = ("-c", textwrap.dedent(program), str(tmp_path), str(training.info))
    run_python(*words, environment=training.environment(None), cwd=training.directory).good()


# Of parts -------------------------------------------------------------------------------------------------------------


class Counted:
    """A device that remembers its blocks."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def fake_allocate(self, size: int, stream: int) -> Optional[int]:
        assert stream == 0
        self.events.append(("+", size))
        return len(self.events) if size else None

    def fake_record_stream(self, block: int, stream: int) -> None:
        self.events.append(("=", stream))

    def fake_free(self, block: int) -> None:
        self.events.append(("-", self.events[block - 1][1]))


class Storage:
    def __init__(self, size: int) -> None:
        self._cdata = id(self)
        self.size = size

    def nbytes(self) -> int:
        return self.size


def test_a_sum_takes_the_block_of_an_operand_that_dies_at_once() -> None:
    device = Counted()
    blocks = Blocks(device)
    left, right, result = Storage(4096), Storage(4096), Storage(4096)
    blocks.see(left)
    blocks.see(right)
    blocks.see(result, sum_into=left)
    del left
    del right
    assert device.events == [("+", 4096), ("+", 4096), ("-", 4096)]
    del result
    assert device.events[3:] == [("-", 4096)]


def test_a_sum_takes_the_block_of_an_operand_that_dies_after_the_other() -> None:
    device = Counted()
    blocks = Blocks(device)
    left, right, kept, result = Storage(4096), Storage(4096), Storage(512), Storage(4096)
    for storage in (left, right, kept):
        blocks.see(storage)
    blocks.see(result, sum_into=left)
    del right, kept, storage
    assert len(device.events) == 3
    del left
    assert device.events[3:] == [("-", 4096), ("-", 512)]
    assert blocks.address(result) == 1


def test_a_sum_whose_operand_stays_is_a_block_before_anything_is_freed() -> None:
    device = Counted()
    blocks = Blocks(device)
    left, right, result = Storage(4096), Storage(4096), Storage(4096)
    blocks.see(left)
    blocks.see(right)
    blocks.see(result, sum_into=left)
    del right
    blocks.settle()
    assert device.events == [("+", 4096), ("+", 4096), ("+", 4096), ("-", 4096)]
    del left


def test_a_sum_is_a_block_where_anything_comes_between() -> None:
    device = Counted()
    blocks = Blocks(device)
    left, result, other = Storage(4096), Storage(4096), Storage(512)
    blocks.see(left)
    blocks.see(result, sum_into=left)
    blocks.see(other)
    del left
    assert device.events == [("+", 4096), ("+", 4096), ("+", 512), ("-", 4096)]
    assert blocks.address(result) == 2


def test_a_sum_of_other_size_is_a_block() -> None:
    device = Counted()
    blocks = Blocks(device)
    left, result = Storage(512), Storage(4096)
    blocks.see(left)
    blocks.see(result, sum_into=left)
    del left
    assert device.events == [("+", 512), ("+", 4096), ("-", 512)]


def test_a_storage_that_is_resized_has_another_block() -> None:
    device = Counted()
    blocks = Blocks(device)
    storage = Storage(4096)
    blocks.see(storage)
    blocks.resize(storage, lambda: setattr(storage, "size", 0))
    assert device.events == [("+", 4096), ("+", 0), ("-", 4096)]
    assert blocks.address(storage) == 0


def test_assumptions_are_read() -> None:
    assert parse_assumptions("") == parse_assumptions("float=1")
    told = {"float": 1.0, "int": 3, "bool": True, "nonzero": 0.25, "equal": 0.5, "unique": 7}
    assert parse_assumptions("int=3,bool=1,nonzero=1/4,equal=1/2,unique=7").as_facts() == told
    for wrong in ("integer=3", "bool=2", "nonzero=2", "nonzero=1/0", "int", "int=x", "equal=3", "unique=0"):
        with pytest.raises(ValueError, match="assumptions are float, int, bool, nonzero, equal and unique"):
            parse_assumptions(wrong)
