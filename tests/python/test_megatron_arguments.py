"""stalloc's variables as arguments of a Megatron script."""

from __future__ import annotations

import ast

import pytest

from megatron_scripts import SCRIPT, Megatron
from processes import Finished, run_python
from stalloc.core.variables import VARIABLES

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
        "stalloc_auto_wait": None,
        "stalloc_trace_fast_mode": "1",
        "stalloc_trace_steps": None,
        "stalloc_trace_ranks": None,
        "stalloc_trace_max_events": None,
        "stalloc_trace_fake": None,
        "stalloc_fake_assume": None,
        "stalloc_trace_names": None,
        "stalloc_trace_detail": None,
        "stalloc_trace_stacks": None,
        "stalloc_trace_uses": None,
        "stalloc_log_steps": None,
        "stalloc_tensorboard": None,
        "stalloc_trace_modules": None,
        "stalloc_trace_times": None,
        "stalloc_nvtx": None,
        "stalloc_dynamic": None,
        "stalloc_plan_rank": None,
        "stalloc_static_fallback": None,
        "stalloc_log_level": None,
        "stalloc_strict": None,
        "stalloc_device": "cpu",
        "stalloc_memory_limit": None,
        "stalloc_keep_free": None,
        "stalloc_graphs": None,
        "stalloc_watch": None,
        "stalloc_test_moves": None,
        "stalloc_oom_report": None,
        "stalloc_sleep_socket": None,
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
        (["--stalloc-mode", "Trac"], "STALLOC_MODE must be one of Torch, Trace, Alloc, Auto: 'Trac'"),
        (["--stalloc-strict", "yes"], "--stalloc-strict: invalid choice: 'yes'"),
    ],
)
def test_a_wrong_argument_names_itself(megatron: Megatron, words: list[str], said: str) -> None:
    done = plain_run(megatron, *words)
    assert done.code != 0
    assert said in done.err


def test_every_variable_is_an_argument() -> None:
    program = "import argparse; from stalloc.train.megatron import arguments as a; "
    program += "print(*vars(a.add_arguments(argparse.ArgumentParser()).parse_args([])))"
    assert {name.upper() for name in run_python("-c", program).out.split()} == set(VARIABLES)
