"""Names of parameters, gradients, optimizer state and buffers in a trace, and the classes that follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training, view_of
from stalloc.tools.report import wrappers
from stalloc.train.marking import names as _names
from stalloc.train.marking.paths import ModulePaths

torch = pytest.importorskip("torch")

CLASSES = {
    "parameter": "weights",
    "buffer": "weights",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
}


# What the script expects, the report's view, and the run.
Plain = tuple[list[list[Any]], dict[str, Any], Training]


def traced(training: Training, kind: str, **extra: str) -> tuple[list[list[Any]], dict[str, Any]]:
    """What the script says that there is, and the report's view of the device."""
    output = training.directory / "expected.json"
    done = training.start_plain(
        "Trace", "-m", "stalloc", "run", str(SCRIPTS / "named_training.py"), kind, str(output), "4", **extra
    ).good()
    assert "no names" not in done.err
    trace = training.info / "trace" / "rank00000.trace"
    return json.loads(output.read_text()), view_of(training.build, trace)


@pytest.fixture(scope="module")
def plain(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    training = Training(build, tmp_path_factory.mktemp("plain"))
    return (*traced(training, "plain"), training)


def rows_of_peak(view: dict[str, Any]) -> list[dict[str, Any]]:
    device = view["devices"][0]
    peak = device["peak"]
    columns = ("bytes", "count", "class", "layer", "tensor", "name", "tensors")
    rows = [dict(zip(columns, values)) for values in zip(*(peak[column] for column in columns))]
    for row in rows:
        row["class"] = view["classes"][row["class"]]
        row["layer"] = device["layers"][row["layer"]]
    return rows


def rounded(count: int) -> int:
    return -(-count // 512) * 512


def test_every_tensor_of_a_training_run_has_its_name_and_class(plain: Plain) -> None:
    expected, view, _ = plain
    found = {(row["tensor"], row["name"]): row for row in rows_of_peak(view)}
    # The peak is in the optimizer's first step or in a later backward pass; what is live there is named.
    for tensor, name, count in expected:
        row = found.get((tensor, name))
        if row is None:
            assert tensor == "gradient", f"{tensor} {name} has no name"
            continue
        assert row["class"] == CLASSES[tensor]
        assert (row["bytes"], row["count"], row["tensors"]) == (rounded(count), 1, 1)
        assert row["layer"] == name.partition(":")[0].rpartition(".")[0]
    assert {("parameter", "Net.blocks.1.down.weight"), ("buffer", "Net.blocks.0.norm.running_mean")} <= set(found)
    assert ("optimizer state", "Net.blocks.0.up.weight:exp_avg_sq") in found
    assert any(tensor == "gradient" for tensor, _ in found)


def test_gradients_are_named_in_every_iteration(plain: Plain) -> None:
    expected, view, _ = plain
    gradients = sum(rounded(count) for tensor, _, count in expected if tensor == "gradient")
    phases = view["devices"][0]["phases"]
    of_gradients = view["classes"].index("gradients")
    steps = [
        by[of_gradients] for name, by in zip(phases["name"], phases["begin_by_class"]) if name.endswith(", optimizer")
    ]
    assert len(steps) == 4
    assert all(step == gradients for step in steps), "the loss, which has no name, is none"


def test_a_flattened_buffer_has_all_names_inside(training: Training) -> None:
    expected, view = traced(training, "flat")
    parameters = [name for tensor, name, _ in expected if tensor == "parameter"]
    rows = {row["tensor"]: row for row in rows_of_peak(view) if row["tensors"] > 1}
    for tensor in ("parameter", "gradient"):
        assert rows[tensor]["tensors"] == len(parameters)
        assert rows[tensor]["name"] == f"{parameters[0]} and {len(parameters) - 1} more"
        assert rows[tensor]["class"] == CLASSES[tensor]
        assert rows[tensor]["layer"] == "Net.blocks", "the module that holds all of them"


def test_the_optimizer_s_own_copies_are_its_state(training: Training) -> None:
    _, view = traced(training, "main")
    rows = {(row["tensor"], row["name"]): row for row in rows_of_peak(view)}
    assert rows["optimizer state", "Net.blocks.0.up.weight:main"]["class"] == "optimizer state"
    assert rows["optimizer state", "Net.blocks.0.up.weight:main:exp_avg"]["class"] == "optimizer state"
    assert rows["parameter", "Net.blocks.0.up.weight"]["class"] == "weights"


def test_names_can_be_switched_off_and_change_nothing_else(plain: Plain, training: Training) -> None:
    _, named, _ = plain
    _, without = traced(training, "plain", STALLOC_TRACE_NAMES="0")
    assert not any(row["name"] for row in rows_of_peak(without))
    assert without["devices"][0]["peak"]["live_bytes"] == named["devices"][0]["peak"]["live_bytes"]
    views = (without, named)
    requests = [[segment["requests"] for segment in view["rank"]["devices"][0]["segments"]] for view in views]
    assert requests[0] == requests[1]


# -- Without a process


class Library:
    """Takes what it is told; blocks are storages' addresses."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.told: list[tuple[int, int, int, str]] = []

    def text(self, text: bytes) -> int:
        self.texts.append(text.decode())
        return len(self.texts) - 1

    def name_tensor(self, block: int, offset: int, count: int, role: int, text: int) -> None:
        self.told.append((block, offset, role, self.texts[text]))

    def of(self, role: int) -> list[str]:
        return [name for _, _, told, name in self.told if told == role]


def names_over(library: Library, *models: Any) -> _names.TensorNames:
    paths = ModulePaths()
    for model in models:
        paths.name(model)
    paths.discover = lambda torch: None  # type: ignore[method-assign]
    return _names.TensorNames(library, torch, paths, lambda: True)


def test_tied_weights_have_one_name() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8, bias=False))
    model[1].weight = model[0].weight
    library = Library()
    names_over(library, model).resolve()
    assert library.of(_names.PARAMETER) == ["Sequential.0.weight"]


def test_parameters_that_no_module_has_are_the_model_only_where_there_is_none() -> None:
    free = torch.zeros(4, requires_grad=True)
    free.sum().backward()
    alone, beside = Library(), Library()
    optimizer = torch.optim.SGD([free], momentum=0.9)
    names_over(alone).before_step(optimizer)
    model = torch.nn.Linear(2, 2)
    names_over(beside, model).before_step(optimizer)
    assert (alone.of(_names.PARAMETER), alone.of(_names.GRADIENT)) == (["SGD.0.0"], ["SGD.0.0"])
    assert (beside.of(_names.OPTIMIZER_STATE), beside.of(_names.GRADIENT)) == (["SGD.0.0:main"], ["SGD.0.0:main"])


def model_of_two() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
    model[0].bias.requires_grad_(False)
    return model


def test_copies_in_the_order_of_the_parameters_are_theirs() -> None:
    model, library = model_of_two(), Library()
    copies = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters() if p.requires_grad]
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    optimizer = torch.optim.SGD(copies)
    names_over(library, model).before_step(optimizer)
    mains = [f"Sequential.{name}:main" for name in ("0.weight", "1.weight", "1.bias")]
    assert (library.of(_names.OPTIMIZER_STATE), library.of(_names.GRADIENT)) == (mains, mains)
    library = Library()
    optimizer.param_groups[0]["params"] = copies[::-1]
    names_over(library, model).before_step(optimizer)
    assert library.of(_names.OPTIMIZER_STATE) == [f"SGD.0.{number}:main" for number in range(3)], "in no known order"


def test_a_shard_that_is_a_view_is_what_it_is_a_view_of() -> None:
    """Of Megatron's distributed optimizer in fp32: ranges of parameters that lie in one buffer."""
    flat, library = torch.zeros(12), Library()
    model = torch.nn.Module()
    model.a, model.b = torch.nn.Parameter(flat[:4]), torch.nn.Parameter(flat[4:10])
    shards = [torch.nn.Parameter(model.a.detach()[2:]), torch.nn.Parameter(model.b.detach()[:3])]
    beyond = torch.nn.Parameter(flat[10:])
    optimizer = torch.optim.SGD([*shards, beyond])
    names = names_over(library, model)
    names.before_step(optimizer)
    optimizer.state = {shard: {"momentum_buffer": torch.zeros(2)} for shard in shards}
    names.after_step(optimizer)
    assert library.of(_names.OPTIMIZER_STATE) == [
        "SGD.0.2:main",
        "Module.a:momentum_buffer",
        "Module.b:momentum_buffer",
    ]


def test_state_in_lists_and_dictionaries_is_found() -> None:
    library = Library()
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter])
    names = names_over(library)
    names.before_step(optimizer)
    optimizer.state[parameter] = {"factors": [torch.zeros(2), {"left": torch.zeros(3)}], "step": 3}
    names.after_step(optimizer)
    assert library.of(_names.OPTIMIZER_STATE) == ["SGD.0.0:factors:0", "SGD.0.0:factors:1:left"]


def test_a_distributed_tensor_is_its_local_part() -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    local = torch.zeros(4)
    meta = TensorMeta(torch.Size([8]), (1,), torch.float32)
    whole = DTensor(local, DTensorSpec(None, (), tensor_meta=meta), requires_grad=False)
    model = torch.nn.Module()
    model.register_buffer("whole", whole)
    library = Library()
    names_over(library, model).resolve()
    assert library.told == [(local.untyped_storage().data_ptr(), 0, _names.BUFFER, "Module.whole")]


def test_a_flat_parameter_of_fsdp_is_what_it_is_made_of() -> None:
    model = torch.nn.Module()
    model._flat_param = torch.nn.Parameter(torch.zeros(6))
    model._flat_param._fqns = ("up.weight", "up.bias")
    library = Library()
    names_over(library, model).resolve()
    assert library.of(_names.PARAMETER) == ["Module.up.weight", "Module.up.bias"]


def test_views_tell_where_they_lie() -> None:
    flat = torch.zeros(10)
    model = torch.nn.Module()
    model.a, model.b = torch.nn.Parameter(flat[:4]), torch.nn.Parameter(flat[4:])
    library = Library()
    names_over(library, model).resolve()
    base = flat.untyped_storage().data_ptr()
    assert [told[:2] for told in library.told] == [(base, 0), (base, 16)]


def test_tensors_without_memory_are_passed_over() -> None:
    model = torch.nn.Module()
    model.meta = torch.nn.Parameter(torch.zeros(4, device="meta"))
    model.none = torch.nn.Parameter(torch.empty(0))
    model.register_buffer("sparse", torch.zeros(2, 2).to_sparse())
    library = Library()
    names_over(library, model).resolve()
    assert library.told == []


def test_what_a_model_raises_does_not_end_its_training(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(torch.nn.Module):  # type: ignore[misc, name-defined]
        @property
        def whatever(self) -> None: ...

    model = Broken()
    model._parameters["a"] = property()  # not a tensor: it has no .grad
    library = Library()
    names = names_over(library, model)
    names.resolve()
    names.resolve()
    assert capsys.readouterr().err.count("blocks of the trace get no names from now on: AttributeError") == 1


def test_modules_are_found_without_a_hook() -> None:
    class Outermost(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2)})

    model = Outermost()
    paths = ModulePaths()
    paths.discover(torch)
    assert paths[model.inner["a"]] == "Outermost.inner.a"


def test_names_of_blocks_that_stay_are_written_once(plain: Plain) -> None:
    trace = plain[2].info / "trace" / "rank00000.trace"
    assert trace.read_bytes().count(b"Net.blocks.0.up.weight:exp_avg_sq") == 1


def test_wrappers_are_left_out_of_names() -> None:
    def device(*names: str) -> dict[str, Any]:
        return {
            "layers": ["", "DistributedDataParallel#2.module.module.decoder.layers.0", "Gpt.blocks.0"],
            "peak": {"name": list(names), "names": ["\n".join(names), ""]},
            "top_blocks": {"name": ["DistributedDataParallel#2.module.module"]},
            "alternatives": {"layers": ["DistributedDataParallel.module.decoder.layers.*.mlp"]},
        }

    told = device("DistributedDataParallel.module.up.weight and 3 more", "OptimizedModule#2._orig_mod.up.bias:exp_avg")
    wrappers.unwrap(told)
    assert told["layers"] == ["", "DistributedDataParallel#2.module.module.decoder.layers.0", "Gpt.blocks.0"]
    assert told["peak"]["name"] == ["up.weight and 3 more", "OptimizedModule#2._orig_mod.up.bias:exp_avg"]
    assert told["alternatives"]["layers"] == ["decoder.layers.*.mlp"]

    told = device("DistributedDataParallel.module.up.weight")
    wrappers.unwrap(told)
    assert told["layers"] == ["", "#2 decoder.layers.0", "Gpt.blocks.0"]
    assert told["peak"]["names"] == ["up.weight", ""]
    assert told["top_blocks"]["name"] == ["DistributedDataParallel#2.module.module"], "nothing would be left"
