"""The published tool's names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from megatron_scripts import SCRIPT, Megatron
from processes import Training, run_python


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


def test_the_published_planner_s_flags_work(planned: Training, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    shutil.copytree(planned.info / "trace", tmp_path / "trace")
    words = ("--draw", "--validation", "--autotune", f"--model-memory-dir={tmp_path}", "--device", "0", "--json")
    done = run_python("-m", "stalloc", "plan", *words, environment=planned.environment(None)).good()
    assert json.loads(done.out)["ok"]
    report = tmp_path / "output" / "report" / "report.html"
    assert str(report) in done.err
    assert '"plan":{"arena_bytes":' in report.read_text(), "drawn behind the plan"
    failed = run_python("-m", "stalloc", "plan", "--draw", str(tmp_path / "x"), environment=planned.environment(None))
    assert failed.code == 1
    assert "report" not in failed.err
    shown = run_python("-m", "stalloc", "plan", "--help", environment=planned.environment(None)).out
    assert "--draw" in shown
