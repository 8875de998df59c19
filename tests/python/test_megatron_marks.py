"""Megatron's marks: what of a script is marked, where a mark ends, and what is fenced."""

from __future__ import annotations

import json

import pytest

from megatron_scripts import VERSIONS, Megatron


def between(marks: list[str], first: str, last: str) -> list[str]:
    return marks[marks.index(first) + 1 : marks.index(last)]


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
    step = ["optimizer automatic", "/optimizer automatic", "iteration 1 automatic"]
    assert megatron.marks(ends=True) == [*state, *state, *step]


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
    ("model", "options", "iterations"),
    [
        # Of both iterations; the evaluation between them is none.
        ("[GPTModel()]", "2, microbatches=2, eval_at=[0]", [[310, 988], [7, 512]]),
        ("[GPTModel(context_parallel_size=2)]", "1, microbatches=2", [[620, 1976]]),
        ("[GPTModel(0), GPTModel(1)]", "1", [[310, 988]]),
        ("[GPTModel(sent=(64, 2, 16))]", "1, microbatches=1", [[128]]),
        (
            "[GPTModel(sent=(64, 2, 16), sequence_parallel=True, tensor_model_parallel_size=4)]",
            "1, microbatches=1",
            [[512]],
        ),
    ],
)
def test_a_trace_knows_how_long_micro_batches_were(
    megatron: Megatron, model: str, options: str, iterations: list[list[int]]
) -> None:
    megatron.run(f"{LENGTHS}pretrain(forward_step, {model}, optimizer, {options})")
    told = json.loads((megatron.fake.directory / "trace" / "rank00000.tokens.json").read_text())
    of_each = list(zip(*iterations))
    assert told == {"least": [*map(min, of_each)], "most": [*map(max, of_each)], "iterations": iterations}


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


def test_a_trace_knows_the_tokens_of_experts(megatron: Megatron) -> None:
    """Of training alone, not where reading them would wait for a device, and not twice where layers are recomputed."""
    path = megatron.fake.directory / "trace" / "rank00000.experts.jsonl"
    path.parent.mkdir()
    path.write_text("of an earlier trace")
    megatron.run("pretrain(forward_step, MOE, optimizer, 2, microbatches=2, eval_at=[0])")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"iter": 1, "layer": 3, "tpe": [[1, 10], [2, 10]]},
        {"iter": 2, "layer": 3, "tpe": [[4, 10], [5, 10]]},  # the third is the evaluation's
    ]
    again = "MOE[0][0].token_dispatcher.device = 'cuda'\n"
    megatron.run(f"{again}pretrain(forward_step, MOE, optimizer, 1, microbatches=1)")
    assert not path.exists()
    recomputed = "import torch\ntorch._C = type('C', (), {'_current_graph_task_id': staticmethod(lambda: 0)})\n"
    megatron.run(f"{recomputed}pretrain(forward_step, MOE, optimizer, 1, microbatches=1)")
    assert not path.exists()
