"""How Megatron's functions are found, replaced and put back."""

from __future__ import annotations

import pytest

from megatron_scripts import SCRIPT, Megatron


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
