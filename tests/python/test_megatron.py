"""Megatron's marks, under a fake Megatron that has the real one's names, signatures and imports, per version."""

from __future__ import annotations

import ast
import json
import re

import pytest

from mark_lines import readable
from processes import HERE, ROOT, FakeProcess, Finished
from stalloc.megatron import _arguments

VERSIONS = ["0.17.1", "0.18.2", "0.19.2", "0.20.0"]

# A model chunk is a list of layers. The script starts like a pretrain script does: with from-imports.
SCRIPT = """
import os
from megatron.training import pretrain
from megatron.core.tensor import Tensor
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.optimizer.optimizer import ChainedOptimizer, Float16OptimizerWithFloat16Params, FP32Optimizer

def forward_step(data_iterator, model):
    output = Tensor()
    for layer in model:
        output, _ = layer.forward(output)
    return output

DENSE, MOE, PIPELINE = [[]], [[MoELayer(3)]], [[], []]
optimizer = ChainedOptimizer([Float16OptimizerWithFloat16Params(), FP32Optimizer()])
"""


class Megatron:
    """Runs scripts on the fake Megatron."""

    def __init__(self, fake: FakeProcess) -> None:
        self.fake = fake
        fake.environment["PYTHONPATH"] += f":{HERE / 'fake_megatron'}"

    def run(self, body: str, *arguments: str, head: str = "", **environment: str) -> Finished:
        script = self.fake.directory / "pretrain.py"
        script.write_text(head + SCRIPT + body)
        variables = {"STALLOC_MODE": "Trace", **environment}
        done = self.fake.python("-m", "stalloc", "run", str(script), *arguments, **variables)
        assert done.code == 0, done.err
        return done

    def marks(self, ends: bool = False) -> list[str]:
        return readable(self.fake.calls(), ends)


@pytest.fixture
def megatron(fake: FakeProcess) -> Megatron:
    return Megatron(fake)


def between(marks: list[str], first: str, last: str) -> list[str]:
    return marks[marks.index(first) + 1 : marks.index(last)]


# Marks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_under_stalloc_run_a_script_is_marked_without_a_change(megatron: Megatron, version: str) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 2)", FAKE_MEGATRON_VERSION=version)
    assert done.err == ""
    iteration = ["F 0", "B 0", "F 1", "B 1", "optimizer"]
    assert megatron.marks() == ["iteration 0", *iteration, "iteration 1", *iteration]


def test_every_mark_ends_where_its_function_does(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)")
    assert megatron.marks(ends=True) == [
        "iteration 0", "F 0", "/F 0", "B 0", "/B 0", "optimizer", "/optimizer", "/iteration 0",
    ]  # fmt: skip


def test_interleaved_backward_passes_have_the_place_of_their_forward_pass(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, PIPELINE, optimizer, 1)")
    assert megatron.marks() == [
        "iteration 0", "F 0", "F 1", "F 0 chunk 1", "F 1 chunk 1",
        "B 0 chunk 1", "B 1 chunk 1", "B 0", "B 1", "optimizer",
    ]  # fmt: skip


def test_an_output_that_is_not_in_a_list_is_paired_as_well(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, PIPELINE, optimizer, 1, bare=True)")
    assert megatron.marks()[5:9] == ["B 0 chunk 1", "B 1 chunk 1", "B 0", "B 1"]


def test_the_backward_pass_of_several_modules_is_paired_by_the_first_output(megatron: Megatron) -> None:
    megatron.run(
        "from megatron.core.pipeline_parallel import schedules\n"
        "output, _ = schedules.forward_step(lambda *_: {'language': Tensor()}, None, [], 1, None, [], {'bare': 1}, 1,\n"
        "    current_microbatch=4, vp_stage=2)\n"
        "schedules.backward_step_multimodule(None, output, None, {}, 'language')"
    )
    assert megatron.marks() == ["F 4 chunk 2", "B 4 chunk 2"]


def test_merged_passes_are_marked_as_such(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, DENSE, optimizer, 1, combined=True, microbatches=3)")
    assert megatron.marks() == ["iteration 0", "F 0", "FB 1", "FB 2", "B 2", "optimizer"]


def test_deferred_weight_gradients_are_a_pass_of_their_own(megatron: Megatron) -> None:
    megatron.run(
        "from megatron.core.pipeline_parallel.schedules import Config\n"
        "Config.defer_embedding_wgrad_compute = True\n"
        "pretrain(forward_step, PIPELINE, optimizer, 1, microbatches=1)"
    )
    assert megatron.marks()[-3:] == ["B 0", "W 0", "optimizer"]


def test_a_rerun_step_marks_its_passes_again(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, DENSE, optimizer, 1, runs=2, microbatches=1)")
    assert megatron.marks() == ["iteration 0", "F 0", "B 0", "F 0", "B 0", "optimizer"]


def test_evaluation_and_saving_are_fenced_and_mark_nothing_else(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, MOE, optimizer, 1, microbatches=1, eval_at=[0], save_at=[0])")
    marks = megatron.marks(ends=True)
    assert marks[marks.index("/iteration 0") + 1 :] == [
        "fence eval", "fence eval", "/fence eval", "/fence eval",
        "fence save", "fence save", "/fence save", "/fence save",
    ]  # fmt: skip
    assert "saved 0" in done.out


@pytest.mark.parametrize("model", ["DENSE", "PIPELINE"])
def test_a_loop_of_ones_own_evaluates_inside_a_fence(megatron: Megatron, model: str) -> None:
    megatron.run(
        "from megatron.core.pipeline_parallel.schedules import Config, get_forward_backward_func\n"
        f"for forward_only in (True, False): get_forward_backward_func({model})(forward_step_func=forward_step,\n"
        f"    data_iterator=None, model={model}, num_microbatches=1, forward_only=forward_only, config=Config())"
    )
    marks = megatron.marks(ends=True)
    assert marks[:3] == ["fence eval", "/fence eval", "F 0"]
    assert sum(mark.startswith("B 0") for mark in marks) == {"DENSE": 1, "PIPELINE": 2}[model]


def test_a_resumed_run_keeps_megatrons_numbers_and_marks_the_loading(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, DENSE, optimizer, 2, load=True, microbatches=1)")
    assert [mark for mark in megatron.marks() if mark[0] not in "FB"] == [
        "load_checkpoint O", "optimizer_state O", "optimizer_state O",
        "iteration 100", "optimizer", "iteration 101", "optimizer",
    ]  # fmt: skip


def test_a_state_that_is_to_be_saved_is_not_made_and_not_marked(megatron: Megatron) -> None:
    megatron.run("optimizer.sharded_state_dict({})\noptimizer.sharded_state_dict({}, is_loading=False)")
    assert megatron.marks() == []


def test_what_an_optimizer_of_torchs_loads_or_makes_is_its_state(megatron: Megatron) -> None:
    megatron.run("import torch\nadam = torch.optim.Adam()\nadam.load_state_dict({})\nadam.step()")
    state = ["optimizer_state O", "/optimizer_state O"]
    assert megatron.marks(ends=True) == [*state, *state, "optimizer automatic", "iteration 1 automatic"]


def test_an_optimizer_without_marks_of_its_own_makes_its_state_in_its_first_step(megatron: Megatron) -> None:
    """Apex' and TransformerEngine's FusedAdam."""
    megatron.run(
        "from torch.optim.adam import FusedAdam\nfused = FusedAdam()\nfused.step()\nfused.step()\n"
        "torch_s = torch.optim.Optimizer()\ntorch_s.step()",
        head="import torch\n",
    )
    state = [mark for mark in megatron.marks(ends=True) if "optimizer_state" in mark]
    assert state == ["optimizer_state O", "/optimizer_state O"]


@pytest.mark.parametrize(("name", "parts"), [("FusedAdam", 1), ("Adam", 3)])
def test_state_is_loaded_under_the_marks_under_which_a_first_step_makes_it(
    megatron: Megatron, name: str, parts: int
) -> None:
    megatron.run(
        f"from torch.optim.adam import {name}\noptimizer = {name}()\n"
        "optimizer.param_groups = [{'params': []}] * 3\noptimizer.load_state_dict({})",
        head="import torch\n",
    )
    assert megatron.marks() == ["optimizer_state O"] * parts


def test_moe_layers_are_marked_forward_step_by_step_and_backward(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, MOE, optimizer, 1, microbatches=1)")
    assert between(megatron.marks(), "F 0", "optimizer") == [
        "moe3 F", "moe3.route F", "moe3.dispatch F", "moe3.experts F", "moe3.combine F", "B 0", "moe3 B",
    ]  # fmt: skip


LENGTHS = """
from types import SimpleNamespace
from megatron.core.models.gpt.gpt_model import GPTModel
lengths = iter([310, 988, 402, 7, 512])
def forward_step(data_iterator, model):
    tokens = SimpleNamespace(numel=lambda count=next(lengths): count)
    return model.forward(tokens if model.decoder.input_tensor is None else None, None, None)
"""


@pytest.mark.parametrize(
    ("model", "options", "counts"),
    [
        # Of both iterations; the evaluation between them is none.
        ("[GPTModel()]", "2, microbatches=2, eval_at=[0]", {"least": [7, 512], "most": [310, 988]}),
        ("[GPTModel(context_parallel_size=2)]", "1, microbatches=2", {"least": [620, 1976], "most": [620, 1976]}),
        ("[GPTModel(0), GPTModel(1)]", "1", {"least": [310, 988], "most": [310, 988]}),
        ("[GPTModel(sent=(64, 2, 16))]", "1, microbatches=1", {"least": [128], "most": [128]}),
        (
            "[GPTModel(sent=(64, 2, 16), sequence_parallel=True, tensor_model_parallel_size=4)]",
            "1, microbatches=1",
            {"least": [512], "most": [512]},
        ),
    ],
)
def test_a_trace_knows_how_long_micro_batches_were(
    megatron: Megatron, model: str, options: str, counts: dict[str, list[int]]
) -> None:
    megatron.run(f"{LENGTHS}pretrain(forward_step, {model}, optimizer, {options})")
    assert json.loads((megatron.fake.directory / "trace" / "rank00000.tokens.json").read_text()) == counts


def test_captures_are_fenced_and_replays_are_silent(megatron: Megatron) -> None:
    megatron.run("pretrain(forward_step, DENSE, optimizer, 4, full_graph=1, microbatches=1)")
    assert megatron.marks() == [
        "iteration 0", "F 0", "B 0", "optimizer", "iteration 1", "fence capture", "optimizer",
        "iteration 2", "optimizer", "iteration 3", "optimizer",
    ]  # fmt: skip
    megatron.fake.forget_calls()
    megatron.run("pretrain(forward_step, PIPELINE, optimizer, 1, graphs=True, microbatches=1)")
    assert megatron.marks()[-2:] == ["fence capture", "optimizer"]


def test_an_exception_passes_through_and_leaves_no_mark_open(megatron: Megatron) -> None:
    megatron.run(
        "def broken(*_): raise ValueError('the model')\n"
        "try: pretrain(broken, DENSE, optimizer, 1)\nexcept ValueError as error: print(error)\n"
        "pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)"
    )
    marks = megatron.marks(ends=True)
    assert marks[:4] == ["iteration 0", "F 0", "/F 0", "/iteration 0"]
    assert marks[4:6] == ["iteration 0", "F 0"]


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


# Patching -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "missing", "left"),
    [
        ("0.19.2", "megatron.training.training.train_step", ["F 0", "B 0", "optimizer"]),
        ("0.20.0", "megatron.core.pipeline_parallel.schedules.backward_step", ["iteration 0", "F 0", "optimizer"]),
        (
            "0.17.1",
            "megatron.core.transformer.moe.moe_layer.MoELayer.route",
            ["iteration 0", "F 0", "B 0", "optimizer"],
        ),
    ],
)
def test_a_missing_target_is_one_warning_and_the_run_goes_on(
    megatron: Megatron, version: str, missing: str, left: list[str]
) -> None:
    # What is gone from Megatron, its own code does not call either.
    module, _, function = missing.rpartition(".")
    stand_in = "" if "MoELayer" in missing else f"import {module} as m\nm.{function} = lambda *a, **k: loop()\n"
    body = (
        stand_in
        + "from megatron.core.pipeline_parallel import schedules\n"
        + "def loop():\n"
        + "    out, _ = schedules.forward_step(forward_step, None, [], 1, None, [], {}, 1, current_microbatch=0)\n"
        + "    getattr(schedules, 'backward_step', print)(None, out, None, {})\n"
        + "    optimizer.step()\n"
        + ("loop()" if "train_step" in missing else "pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)")
    )
    if "backward_step" in missing:
        body = body.replace("lambda *a, **k: loop()", "lambda *a, **k: None")
    done = megatron.run(body, FAKE_MEGATRON_VERSION=version, FAKE_MEGATRON_MISSING=missing)
    warnings = [line for line in done.err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert f"megatron-core {version} has no {missing}" in warnings[0]
    assert [mark for mark in megatron.marks() if "automatic" not in mark] == left


def test_a_module_that_is_gone_is_a_warning_at_the_first_step(megatron: Megatron) -> None:
    stand_in = "import sys; sys.modules['megatron.core.full_cuda_graph'] = type(sys)('gone')\n"
    # The module exists for Megatron's own import, and not for a look-up.
    done = megatron.run(
        "del sys.modules['megatron.core.full_cuda_graph']\n"
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name.endswith('full_cuda_graph') else find(name, *a)\n"
        "pretrain(forward_step, DENSE, optimizer, 2)",
        head=stand_in + "sys.modules['megatron.core.full_cuda_graph'].FullCudaGraphWrapper = object\n",
    )
    assert done.err.count("has no megatron.core.full_cuda_graph.FullCudaGraphWrapper.__call__") == 1


def test_copies_made_before_the_import_are_found_and_undo_puts_all_back(megatron: Megatron) -> None:
    body = """
import sys, types
from megatron.core.pipeline_parallel.schedules import forward_step as my_copy, backward_step
from megatron.training import training
from megatron.core.transformer.moe.moe_layer import MoELayer as Layer
before = (my_copy, backward_step, training.train_step, training.report_memory, Layer.forward)
user = types.ModuleType("user"); user.copied = training.train_step; sys.modules["user"] = user
import stalloc.megatron
stalloc.megatron.apply()
def now():
    return (my_copy, backward_step, training.train_step, training.report_memory, Layer.forward)
print([new is not old for new, old in zip(now(), before)], user.copied is training.train_step)
later = types.ModuleType("later"); later.copied = training.train_step; sys.modules["later"] = later
held = training.train_step
stalloc.megatron.undo()
print([new is old for new, old in zip(now(), before)], user.copied is before[2], later.copied is before[2])
training.pretrain(lambda *_: Tensor(), DENSE, optimizer, 1)
held(lambda *_: Tensor(), None, DENSE, optimizer, None, {}, training.get_forward_backward_func(DENSE), iteration=5)
stalloc.megatron.apply()
training.pretrain(lambda *_: Tensor(), DENSE, optimizer, 1, microbatches=1)
"""
    # `stalloc run` patches at the import; here Megatron is there first, as under a plain `python pretrain.py`.
    script = megatron.fake.directory / "pretrain.py"
    script.write_text(SCRIPT.replace("from megatron.training import pretrain\n", "") + body)
    done = megatron.fake.python(str(script), STALLOC_MODE="Trace", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [f"{[True] * 5} True", f"{[True] * 5} True True"]
    explicit = [mark for mark in megatron.marks() if "automatic" not in mark]
    assert explicit == ["iteration 0", "F 0", "B 0", "optimizer"]


def test_megatron_may_be_the_one_that_imports_torch(megatron: Megatron) -> None:
    # torch's entry point activates stalloc while a module of Megatron's with targets has run only halfway.
    megatron.fake.install_entry_point()
    script = megatron.fake.directory / "pretrain.py"
    script.write_text(
        "from megatron.core.optimizer.optimizer import ChainedOptimizer as Early\n"
        + SCRIPT
        + "assert Early is ChainedOptimizer\npretrain(forward_step, DENSE, optimizer, 1, microbatches=1)"
    )
    done = megatron.fake.python(str(script), STALLOC_MODE="Trace")
    assert (done.code, done.err) == (0, "")
    assert megatron.marks() == ["iteration 0", "F 0", "B 0", "optimizer"]


def test_looking_for_a_module_without_importing_it_patches_nothing_and_loses_nothing(megatron: Megatron) -> None:
    head = "import importlib.util\nassert importlib.util.find_spec('megatron.training.training')\n"
    megatron.run("pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)", head=head)
    assert megatron.marks() == ["iteration 0", "F 0", "B 0", "optimizer"]


def test_without_a_mode_megatron_is_left_alone(megatron: Megatron) -> None:
    program = (
        SCRIPT
        + "import stalloc.megatron\nfrom megatron.training import training\nprint(training.train_step.__module__)"
    )
    script = megatron.fake.directory / "pretrain.py"
    script.write_text("import stalloc.megatron\n" + program)
    done = megatron.fake.python(str(script))
    assert (done.code, done.out, done.err) == (0, "megatron.training.training\n", "")
    assert megatron.fake.calls() == []


def test_mode_torch_reports_each_of_megatrons_iterations(megatron: Megatron) -> None:
    done = megatron.run("pretrain(forward_step, DENSE, optimizer, 2, start=10)", STALLOC_MODE="Torch")
    assert [line.split(":")[0] for line in done.err.splitlines()] == [
        "[stalloc] rank 0 iteration 10",
        "[stalloc] rank 0 iteration 11",
    ]


# Arguments ----------------------------------------------------------------------------------------------------------

PARSE = """
import argparse, sys
def my_arguments(parser):
    parser.add_argument("--mine")
    return stalloc.megatron.add_arguments(parser)
print(sorted(vars(my_arguments(argparse.ArgumentParser()).parse_args()).items()))
pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)
"""


def plain_run(megatron: Megatron, *arguments: str, **environment: str) -> Finished:
    script = megatron.fake.directory / "pretrain.py"
    script.write_text("import stalloc.megatron\n" + SCRIPT + PARSE)
    return megatron.fake.python(str(script), *arguments, **environment)


def test_variables_can_be_arguments_of_the_script(megatron: Megatron) -> None:
    done = plain_run(
        megatron, "--mine", "1", "--stalloc-mode", "Trace", "--stalloc-trace-fast-mode", "--stalloc-device=cpu"
    )
    assert (done.code, done.err) == (0, "")
    assert dict(ast.literal_eval(done.out)) == {
        "mine": "1",
        "stalloc_mode": "Trace",
        "stalloc_model_info_path": str(megatron.fake.directory),
        "stalloc_lib_path": megatron.fake.environment["STALLOC_LIB_PATH"],
        "stalloc_trace_fast_mode": "1",
        "stalloc_trace_steps": None,
        "stalloc_trace_ranks": None,
        "stalloc_trace_max_events": None,
        "stalloc_trace_fake": None,
        "stalloc_fake_assume": None,
        "stalloc_trace_names": None,
        "stalloc_trace_stacks": None,
        "stalloc_trace_uses": None,
        "stalloc_log_steps": None,
        "stalloc_tensorboard": None,
        "stalloc_trace_modules": None,
        "stalloc_nvtx": None,
        "stalloc_dynamic": None,
        "stalloc_plan_rank": None,
        "stalloc_static_fallback": None,
        "stalloc_log_level": None,
        "stalloc_strict": None,
        "stalloc_device": "cpu",
        "stalloc_memory_limit": None,
        "stalloc_watch": None,
        "stalloc_oom_report": None,
    }
    assert megatron.fake.calls()[0] == "install cpu 2.11.0+cu130"
    assert megatron.marks() == ["iteration 0", "F 0", "B 0", "optimizer"]


def test_an_argument_that_came_too_late_is_a_warning(megatron: Megatron) -> None:
    done = plain_run(megatron, "--stalloc-log-level", "1", STALLOC_MODE="Trace")
    assert done.code == 0
    assert "--stalloc-log-level 1 came too late, the allocator is in place with the default" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stalloc-mode", "Trac"], "STALLOC_MODE must be one of Torch, Trace, Alloc: 'Trac'"),
        (["--stalloc-strict", "yes"], "--stalloc-strict: invalid choice: 'yes'"),
    ],
)
def test_a_wrong_argument_names_itself(megatron: Megatron, words: list[str], said: str) -> None:
    done = plain_run(megatron, *words)
    assert done.code != 0
    assert said in done.err


def test_every_variable_of_the_library_is_an_argument() -> None:
    sources = [ROOT / "allocator" / "runtime" / "config.cc", ROOT / "patches" / "stalloc" / "_config.py"]
    read = {name for path in sources for name in re.findall(r'"(STALLOC_[A-Z_]+)"', path.read_text())}
    assert read == set(_arguments._VARIABLES)


# The published tool's names -----------------------------------------------------------------------------------------


def test_the_published_tools_names_work(megatron: Megatron) -> None:
    body = """
from stalloc.compat import add_STAlloc_patch_for_infini, hook_memory_model
class Model:
    def named_modules(self): return []
add_STAlloc_patch_for_infini()
model = Model()
print(hook_memory_model(model, None) is model)
pretrain(forward_step, DENSE, optimizer, 1, microbatches=1)
"""
    script = megatron.fake.directory / "pretrain.py"
    script.write_text("from stalloc.compat import hook_memory_model\n" + SCRIPT + body)
    done = megatron.fake.python(str(script), STALLOC_MODE="Trace")
    assert (done.code, done.out, done.err) == (0, "True\n", "")
    assert megatron.marks() == ["iteration 0", "F 0", "B 0", "optimizer"]


def test_schedulers_of_megatron_infini_are_marked(megatron: Megatron) -> None:
    package = megatron.fake.directory / "site" / "megatron_infini"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "scheduler.py").write_text(
        "from megatron.core.pipeline_parallel.schedules import backward_step\n"
        "def forward_step(forward_step_func, data_iterator, model, num_microbatches, current_microbatch=None):\n"
        "    return [forward_step_func(data_iterator, model)], 0\n"
    )
    megatron.fake.environment["PYTHONPATH"] += f":{package.parent}"
    megatron.run(
        "import megatron_infini.scheduler as scheduler\n"
        "from stalloc.compat import add_STAlloc_patch_for_infini\n"
        "add_STAlloc_patch_for_infini()\n"
        "output, _ = scheduler.forward_step(forward_step, None, [], 1, current_microbatch=6)\n"
        "scheduler.backward_step(None, output, None, {})"
    )
    assert megatron.marks() == ["F 6", "B 6"]
