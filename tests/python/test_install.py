"""Installing: every way in, every way out. Under a fake torch and fake libraries, each case in a process of its own."""

from __future__ import annotations

import sys

import pytest

from processes import ROOT, FakeProcess, Training, run_python

STEPS = "import torch\noptimizer = torch.optim.Optimizer()\nfor _ in range(2): optimizer.step()\n"
INSTALLED_CPU = "install cpu 2.11.0+cu130"
# Two steps of an optimizer: it begins, it ends, the next iteration begins.
AUTOMATIC_MARKS = [
    *("mark 4 1 0 0 0 - 1", "mark 4 2 0 0 0 - 1", "mark 2 1 0 0 1 - 1"),
    *("mark 4 1 0 0 0 - 1", "mark 4 2 0 0 0 - 1", "mark 2 1 0 0 2 - 1"),
]


def test_without_a_mode_stalloc_imports_neither_torch_nor_a_library(fake: FakeProcess) -> None:
    done = fake.python("-c", "import stalloc, sys; print('torch' in sys.modules, stalloc.mode(), stalloc.installed())")
    assert (done.code, done.out, done.err) == (0, "False None False\n", "")
    assert fake.calls() == []


def test_without_a_mode_the_entry_point_does_nothing(fake: FakeProcess) -> None:
    fake.install_entry_point()
    done = fake.python("-c", STEPS + "import stalloc; print(stalloc.mode())")
    assert (done.code, done.out, done.err) == (0, "None\n", "")
    assert fake.calls() == []


@pytest.mark.parametrize("mode", ["Trace", "Alloc"])
def test_importing_stalloc_first_installs(fake: FakeProcess, mode: str) -> None:
    done = fake.python("-c", "import stalloc; print(stalloc.mode(), stalloc.installed())\n" + STEPS, STALLOC_MODE=mode)
    assert (done.code, done.out, done.err) == (0, f"{mode} True\n", "")
    assert fake.calls() == [INSTALLED_CPU, *AUTOMATIC_MARKS, "flush"]


def test_importing_torch_alone_installs_through_the_entry_point(fake: FakeProcess) -> None:
    fake.install_entry_point()
    done = fake.python("-c", STEPS, STALLOC_MODE="Trace")
    assert (done.code, done.err) == (0, "")
    assert fake.calls() == [INSTALLED_CPU, *AUTOMATIC_MARKS, "flush"]


def test_an_import_without_a_variable_loads_marks_alone_and_offers_all_the_same() -> None:
    program = """
import sys, stalloc
print(sorted(name for name in sys.modules if name.startswith(("stalloc.train.", "stalloc.tools", "dataclasses"))))
print([name for name in stalloc.__all__ if not hasattr(stalloc, name)], hasattr(stalloc, "other"))
print(stalloc.sleep is stalloc.sleep, "torch" in sys.modules)"""
    first, *rest = run_python("-c", program).out.splitlines()
    loaded = ("api", "autoload", "imports", "marking", "marking.marks", "process", "session")
    assert first == str([f"stalloc.train.{name}" for name in loaded])
    assert rest == ["[] False", "True False"]


def test_the_entry_point_and_the_import_install_once(fake: FakeProcess) -> None:
    fake.install_entry_point()
    for program in (
        "import stalloc, torch, stalloc.cli",
        "import torch, stalloc",
        "import stalloc.train.autoload, torch",
    ):
        assert fake.python("-c", program, STALLOC_MODE="Trace").code == 0
    assert fake.calls() == [INSTALLED_CPU, "flush"] * 3


def test_stalloc_run_installs_once_and_before_the_script(fake: FakeProcess) -> None:
    fake.install_entry_point()
    (fake.directory / "train.py").write_text("import stalloc; print(stalloc.installed())\n" + STEPS)
    done = fake.python("-m", "stalloc", "run", "--mode", "alloc", "train.py")
    assert (done.code, done.out, done.err) == (0, "True\n", "")
    assert fake.calls() == [INSTALLED_CPU, *AUTOMATIC_MARKS, "flush"]


def test_turning_torchs_autoload_off_leaves_the_import_of_stalloc(fake: FakeProcess) -> None:
    fake.install_entry_point()
    off = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert fake.python("-c", "import torch", STALLOC_MODE="Trace", **off).code == 0
    assert fake.calls() == []
    assert fake.python("-c", "import torch, stalloc", STALLOC_MODE="Trace", **off).code == 0
    assert fake.calls() == [INSTALLED_CPU, "flush"]


# Mode Torch ---------------------------------------------------------------------------------------------------------


def test_mode_torch_waits_for_the_program_to_import_torch(fake: FakeProcess) -> None:
    program = "import stalloc, sys; print('torch' in sys.modules, stalloc.mode(), stalloc.installed())\n" + STEPS
    done = fake.python("-c", program, STALLOC_MODE="Torch", RANK="2")
    assert (done.code, done.out) == (0, "False Torch False\n")
    lines = done.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["[stalloc] rank 2 iteration 0", "[stalloc] rank 2 iteration 1"]
    assert fake.calls() == []


def test_mode_torch_reports_explicit_iterations_and_the_last_one_at_exit(fake: FakeProcess) -> None:
    program = "import torch, stalloc\nfor i in range(2): stalloc.iteration(i); torch.optim.Optimizer().step()"
    done = fake.python("-c", program, STALLOC_MODE="Torch")
    assert [line.split(":")[0][-1] for line in done.err.splitlines()] == ["0", "1"]


def test_mode_torch_leaves_the_import_system_as_it_was_but_for_the_watch_for_frameworks(fake: FakeProcess) -> None:
    program = (
        "import sys; before = list(sys.meta_path)\nimport stalloc, torch\nfrom stalloc.train.imports import _watch\n"
        "assert sys.meta_path == [_watch, *before]\nassert not _watch.callbacks"
    )
    assert fake.python("-c", program, STALLOC_MODE="Torch").err == ""


# Devices and torch versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "asked", "device"), [("0", "", "cpu"), ("1", "", "cuda"), ("1", "cpu", "cpu"), ("0", "cuda", "cuda")]
)
def test_the_device_is_the_machines_unless_asked_for(fake: FakeProcess, machine: str, asked: str, device: str) -> None:
    variables = {"FAKE_CUDA": machine, "STALLOC_DEVICE": asked}
    program = "import stalloc, os; assert 'PYTORCH_NVML_BASED_CUDA_CHECK' not in os.environ"
    assert fake.python("-c", program, STALLOC_MODE="Alloc", **variables).code == 0
    assert fake.calls()[0] == f"install {device} 2.11.0+cu130"


def test_cuda_that_is_initialised_already_is_an_error_that_says_what_to_do(fake: FakeProcess) -> None:
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", FAKE_CUDA="1", FAKE_CUDA_INITIALIZED="1")
    assert done.code == 1
    assert "RuntimeError: CUDA is initialised already" in done.err
    assert "megatron.training" in done.err
    assert fake.calls() == []


PLUGGABLE = """
import stalloc, torch, os
path, malloc, free = torch.cuda.memory.installed.arguments
print(os.path.basename(path), malloc, free, torch.cuda.memory.installed.allocator().record_stream_address != 0)
stalloc.iteration(4)
"""


def test_an_adapter_without_cuda_gives_way_to_the_pluggable_allocator(fake: FakeProcess) -> None:
    done = fake.python("-c", PLUGGABLE, STALLOC_MODE="Alloc", FAKE_CUDA="1", FAKE_HAS_CUDA="0")
    assert (done.code, done.out) == (0, "libstalloc.so stalloc_malloc stalloc_free True\n")
    assert "warning: the adapter" in done.err
    assert "memory_stats" in done.err
    assert fake.calls() == ["init", "mark 2 1 0 0 4 - 0", "flush"]


OTHER_TORCH = "error: built for torch 2.11.0, and this is torch 2.12.1, whose allocator has other classes: to build it"


@pytest.mark.parametrize("cuda", ["0", "1"])
@pytest.mark.parametrize("program", ["import stalloc", "import torch"])
def test_a_run_under_a_torch_that_no_adapter_is_for_goes_on_unplanned(
    fake: FakeProcess, cuda: str, program: str
) -> None:
    fake.install_entry_point()
    program += "; import torch, stalloc; stalloc.iteration(1); print(stalloc.installed())"
    done = fake.python("-c", program, STALLOC_MODE="Alloc", FAKE_TORCH_VERSION="2.12.1", FAKE_CUDA=cuda)
    assert (done.code, done.out) == (0, "False\n")
    assert done.err.count(OTHER_TORCH) == 1
    assert "pip install --force-reinstall" in done.err
    assert fake.calls() == []


@pytest.mark.parametrize("version", ["2.8.0", "2.16.0", "3.0.0a0+gitabc"])
def test_a_torch_that_stalloc_does_not_know_is_one_line_without_a_remedy_that_is_none(
    fake: FakeProcess, version: str
) -> None:
    done = fake.python("-c", "import stalloc; import torch; print(1)", STALLOC_MODE="Alloc", FAKE_TORCH_VERSION=version)
    assert (done.code, done.out) == (0, "1\n")
    assert done.err == (
        f"[stalloc] rank 0 error: no adapter is for torch {version}: stalloc has them for PyTorch 2.9 to 2.15; planner "
        "and reports work; this run goes on with plain torch, unplanned\n"
    )


def test_stalloc_run_goes_on_under_a_torch_that_no_adapter_is_for_unless_strict(fake: FakeProcess) -> None:
    fake.install_entry_point()
    (fake.directory / "train.py").write_text("import torch, stalloc; print(stalloc.installed())")
    words = ("-m", "stalloc", "run", "--mode", "alloc", "train.py")
    done = fake.python(*words, FAKE_TORCH_VERSION="2.12.1")
    assert (done.code, done.out) == (0, "False\n")
    assert done.err.count(OTHER_TORCH) == 1
    strict = fake.python(*words, FAKE_TORCH_VERSION="2.12.1", STALLOC_STRICT="1")
    assert (strict.code, strict.out) == (1, "")
    assert strict.err.startswith("stalloc run: built for torch 2.11.0, and this is torch 2.12.1")


@pytest.mark.parametrize("cuda", ["0", "1"])
def test_a_torch_that_no_adapter_is_for_is_an_error_when_strict(fake: FakeProcess, cuda: str) -> None:
    variables = {"FAKE_TORCH_VERSION": "2.12.1", "FAKE_CUDA": cuda, "STALLOC_STRICT": "1"}
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", **variables)
    assert done.code == 1
    assert "built for torch 2.11.0, and this is torch 2.12.1" in done.err
    assert fake.calls() == []


def test_a_torch_without_headers_must_be_the_release_that_was_built_for(fake: FakeProcess) -> None:
    assert fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", FAKE_TORCH_VERSION="2.11.0+cpu").code == 0
    assert fake.calls()[0] == "install cpu 2.11.0+cpu"
    fake.forget_calls()
    for version in ("2.11.1", "2.11.0a0+git0123456"):
        done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", FAKE_TORCH_VERSION=version)
        assert f"this is torch {version}" in done.err
        assert fake.calls() == []


def test_a_library_of_another_abi_is_refused(fake: FakeProcess) -> None:
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", FAKE_ABI="0")
    assert done.code == 1
    assert "speaks an older ABI than this package; reinstall stalloc: library 0, package 8" in done.err


def test_missing_libraries_are_an_error_that_lists_where_they_were_looked_for(fake: FakeProcess) -> None:
    nowhere = str(fake.directory / "nowhere")
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", STALLOC_LIB_PATH=nowhere)
    if done.code == 0:
        pytest.skip("this source tree has a release build, which is looked at next")
    assert "libstalloc_torch.so" in done.err


# Failures -----------------------------------------------------------------------------------------------------------


def test_an_install_that_fails_ends_the_import_of_stalloc(fake: FakeProcess) -> None:
    done = fake.python("-c", "import stalloc", STALLOC_MODE="Alloc", FAKE_ERROR="the moon is full")
    assert done.code == 1
    assert "RuntimeError: stalloc could not be installed under torch: the moon is full" in done.err


def test_an_install_that_fails_ends_stalloc_run_with_one_line(fake: FakeProcess) -> None:
    (fake.directory / "train.py").write_text("print('ran')")
    done = fake.python("-m", "stalloc", "run", "train.py", STALLOC_MODE="Alloc", FAKE_ERROR="the moon is full")
    assert (done.code, done.out) == (1, "")
    assert done.err == "stalloc run: stalloc could not be installed under torch: the moon is full\n"


def test_an_install_that_fails_leaves_torch_importable(fake: FakeProcess) -> None:
    fake.install_entry_point()
    done = fake.python("-c", STEPS + "print('trained')", STALLOC_MODE="Alloc", FAKE_ERROR="the moon is full")
    assert (done.code, done.out) == (0, "trained\n")
    assert done.err.count("the moon is full") == 1
    assert "going on with plain torch" in done.err


def test_an_install_that_fails_ends_the_import_of_torch_when_strict(fake: FakeProcess) -> None:
    fake.install_entry_point()
    done = fake.python("-c", STEPS, STALLOC_MODE="Alloc", FAKE_ERROR="the moon is full", STALLOC_STRICT="1")
    assert done.code == 1


@pytest.mark.parametrize("program", ["import stalloc", "import torch"])
def test_an_unknown_mode_stops_the_program(fake: FakeProcess, program: str) -> None:
    fake.install_entry_point()
    done = fake.python("-c", program, STALLOC_MODE="Tracing")
    assert done.code == 2
    assert done.err == "[stalloc] rank 0 error: STALLOC_MODE must be one of Torch, Trace, Alloc, Auto: 'Tracing'\n"


@pytest.mark.parametrize("program", ["import stalloc", "import torch"])
def test_a_value_that_the_library_does_not_allow_stops_the_program(fake: FakeProcess, program: str) -> None:
    fake.install_entry_point()
    text = 'STALLOC_WATCH must be 0 or 1; found "yes"'
    done = fake.python("-c", program, STALLOC_MODE="Alloc", FAKE_ERROR=text)
    assert (done.code, done.err) == (2, f"[stalloc] rank 0 error: {text}\n")


@pytest.mark.parametrize("variable", ["STALLOC_WATCH", "STALLOC_DYNAMIC", "RANK"])
def test_the_librarys_own_words_for_such_a_value_are_known(training: Training, variable: str) -> None:
    environment = {"PYTHONPATH": str(ROOT / "patches"), **training.environment("Trace"), variable: "yes"}
    done = run_python("-c", "import stalloc", environment=environment)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"error: {variable} must be " in done.err


# Other processes ----------------------------------------------------------------------------------------------------

CHILD = """import subprocess, sys, stalloc
sys.exit(subprocess.run([sys.executable, '-c', 'import stalloc, torch']).returncode)
"""


def test_a_child_of_the_same_rank_stays_inactive_and_silent(fake: FakeProcess) -> None:
    fake.install_entry_point()
    for rank in ({}, {"RANK": "0"}):
        done = fake.python("-c", CHILD, STALLOC_MODE="Trace", **rank)
        assert (done.code, done.err) == (0, "")
    assert fake.calls() == [INSTALLED_CPU, "flush"] * 2


def test_a_worker_of_another_rank_installs(fake: FakeProcess) -> None:
    program = CHILD.replace("import subprocess", "import os, subprocess").replace(
        "\n", "\nos.environ['RANK'] = '1'\n", 1
    )
    assert fake.python("-c", program, STALLOC_MODE="Trace", RANK="0").code == 0
    assert fake.calls() == [INSTALLED_CPU, INSTALLED_CPU, "flush", "flush"]


def test_a_program_that_replaces_itself_installs_again(fake: FakeProcess) -> None:
    program = (
        "import os, sys, stalloc\nif 'AGAIN' not in os.environ: os.environ['AGAIN'] = '1'; os.execv(sys.executable, "
    )
    program += "[sys.executable, 'train.py'])\n"
    (fake.directory / "train.py").write_text(program)
    assert fake.python("train.py", STALLOC_MODE="Trace").code == 0
    assert fake.calls() == [INSTALLED_CPU, INSTALLED_CPU, "flush"]


def test_a_forked_child_neither_marks_nor_flushes(fake: FakeProcess) -> None:
    program = (
        "import os, sys, stalloc, torch\n"
        "if os.fork() == 0: stalloc.iteration(0); torch.optim.Optimizer().step(); stalloc.flush(); sys.exit(0)\n"
        "os.wait()\n"
    )
    assert fake.python("-W", "ignore", "-c", program, STALLOC_MODE="Trace").code == 0
    assert fake.calls() == [INSTALLED_CPU, "flush"]


LAUNCHER = (
    "import os, subprocess, sys, torch\nsubprocess.run([sys.executable, 'worker.py'], env={**os.environ, 'RANK': '0'})"
)


def launcher_directory(fake: FakeProcess) -> str:
    """A program called torchrun, and its worker."""
    fake.install_entry_point()
    (fake.directory / "torchrun").write_text(LAUNCHER)
    (fake.directory / "worker.py").write_text("import torch")
    return str(fake.directory / "torchrun")


def test_a_launcher_does_not_install_but_its_workers_do(fake: FakeProcess) -> None:
    assert fake.python(launcher_directory(fake), STALLOC_MODE="Trace").code == 0
    assert fake.calls() == [INSTALLED_CPU, "flush"]


def test_a_launcher_under_stalloc_run_does_not_install_but_its_workers_do(fake: FakeProcess) -> None:
    done = fake.python("-m", "stalloc", "run", "--mode", "Trace", launcher_directory(fake))
    assert (done.code, done.err) == (0, "")
    assert fake.calls() == [INSTALLED_CPU, "flush"]


def test_the_command_line_itself_does_not_install(fake: FakeProcess) -> None:
    fake.install_entry_point()
    done = fake.python("-m", "stalloc", "info", STALLOC_MODE="Trace")
    assert done.code == 0
    assert fake.calls() == []


def test_stats_and_flush_come_from_the_library(fake: FakeProcess) -> None:
    program = "import stalloc; s = stalloc.stats(); print(s['mode'], s['devices'][0]['requests']); stalloc.flush()"
    assert fake.python("-c", program, STALLOC_MODE="Alloc").out == "Alloc 10\n"
    assert fake.calls() == [INSTALLED_CPU, "flush", "flush"]


def test_the_allocators_line_is_printed_where_the_log_level_asks_for_it(fake: FakeProcess) -> None:
    assert fake.python("-c", "import stalloc\n" + STEPS, STALLOC_MODE="Alloc").err == ""
    done = fake.python("-c", "import stalloc\n" + STEPS, STALLOC_MODE="Alloc", STALLOC_LOG_LEVEL="1")
    assert "iteration 1: peak live 2.00 GiB, peak held 4.00 GiB, utilisation 50.0 %, planned 9 of 10" in done.err


def test_the_package_needs_nothing_but_the_standard_library() -> None:
    done = run_python("-S", "-c", "import stalloc, stalloc.cli, sys; print(sys.version_info >= (3, 9))")
    assert (done.code, done.out, done.err) == (0, "True\n", ""), sys.version
