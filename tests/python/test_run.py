"""`stalloc run` is to a program what plain python is to it, and the other commands."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Optional

import pytest

from processes import ROOT, FakeProcess, Finished, run_python
from stalloc import cli
from stalloc.train import run as run_command

INTROSPECTION = """
import json, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "main": main.__dict__ is globals(),
    "file": main.__dict__.get("__file__"), "package": __package__, "spec": getattr(__spec__, "name", None),
    "builtins": type(__builtins__).__name__, "names": sorted(n for n in globals() if not n.startswith("__")),
}))
"""


def under_stalloc(*arguments: str, cwd: Path) -> Finished:
    """Mode Torch, and a program that imports no torch: only the running counts here."""
    return run_python("-m", "stalloc", "run", *arguments, cwd=cwd)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A script in a folder, a module, a folder with __main__.py and an archive, all of which print what they see."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    for name in ("scripts/look.py", "module.py", "package/__main__.py", "package/part.py", "scripts/__main__.py"):
        (tmp_path / name).write_text(INTROSPECTION)
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.writestr("__main__.py", INTROSPECTION)
    return tmp_path


@pytest.mark.parametrize(
    "program",
    [
        ["scripts/look.py", "--mode", "x", "-m", "y"],
        ["./scripts/look.py"],
        ["-m", "module", "--help"],
        ["-m", "package"],
        ["-m", "package.part", "a b"],
    ],
)
def test_a_program_sees_what_it_sees_under_python(programs: Path, program: list[str]) -> None:
    plain = run_python(*program, cwd=programs)
    assert plain.code == 0, plain.err
    ours = under_stalloc(*program, cwd=programs)
    assert (ours.code, ours.err) == (0, "")
    assert json.loads(ours.out) == json.loads(plain.out)


@pytest.mark.parametrize("program", ["scripts", "archive.pyz"])
def test_a_folder_or_archive_runs_as_under_python(programs: Path, program: str) -> None:
    plain, ours = (json.loads(f(program, "a", cwd=programs).out) for f in (run_python, under_stalloc))
    assert all(ours[key] == plain[key] for key in ("argv", "path0", "name"))


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('no more')", 1),
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("def f(): raise ValueError('deep')\nf()", 1),
        ("syntax error here", 1),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import sys; sys.excepthook = lambda *a: print('mine', a[0].__name__, file=sys.stderr)\n1 / 0", 1),
        ("import atexit; atexit.register(print, 'bye')\n1 / 0", 1),
    ],
)
def test_exit_codes_and_tracebacks_are_pythons(tmp_path: Path, source: str, code: int) -> None:
    (tmp_path / "program.py").write_text(source)
    plain = run_python("program.py", cwd=tmp_path)
    ours = under_stalloc("program.py", cwd=tmp_path)
    assert plain.code == code
    assert (ours.code, ours.out) == (plain.code, plain.out)
    assert ours.err.replace(str(tmp_path) + "/", "") == plain.err.replace(str(tmp_path) + "/", "")


def test_a_keyboard_interrupt_ends_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise KeyboardInterrupt")
    assert under_stalloc("program.py", cwd=tmp_path).code == run_python("program.py", cwd=tmp_path).code


def test_an_exception_in_a_module_ends_as_under_python(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("1 / 0")
    plain, ours = run_python("-m", "module", cwd=tmp_path), under_stalloc("-m", "module", cwd=tmp_path)
    assert (ours.code, ours.err.splitlines()[-1]) == (plain.code, plain.err.splitlines()[-1])
    assert "stalloc" not in ours.err


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_finds_the_script_as_its_main_module(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(
        "import multiprocessing\n"
        "class Job:\n    value = 5\n"
        "def work(job): return job.value + 1\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(1) as pool: print(pool.map(work, [Job()]))\n"
    )
    done = under_stalloc("program.py", cwd=tmp_path)
    assert (done.out, done.err) == ("[6]\n", "")


# Command line -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ours", "program"),
    [
        ("run a.py --mode x", "run", "a.py --mode x"),
        ("run --mode Trace a.py b", "run --mode Trace", "a.py b"),
        ("run --mode=Trace --dir d -m mod --dir e", "run --mode=Trace --dir d", "-m mod --dir e"),
        ("run --device cpu -- a.py -m", "run --device cpu", "a.py -m"),
        ("run --help", "run --help", ""),
        ("run", "run", ""),
    ],
)
def test_our_options_end_where_the_program_begins(words: str, ours: str, program: str) -> None:
    assert run_command.split(words.split()) == (ours.split(), program.split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["doctor", "--help"]])
def test_help_is_on_stdout_and_ends_with_zero(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(arguments)
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("usage: stalloc")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {name}\s", out, re.MULTILINE) for name in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["run"], ["run", "-m"], ["run", "--mode", "Tracing", "a.py"], ["run", "--speed", "9", "a.py"]],
)
def test_bad_usage_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(arguments)
    assert leaving.value.code == 2
    assert "usage: stalloc" in capsys.readouterr().err


def test_an_unknown_mode_in_the_environment_ends_run_with_two(fake: FakeProcess) -> None:
    (fake.directory / "a.py").write_text("print('ran')")
    done = fake.python("-m", "stalloc", "run", "a.py", STALLOC_MODE="Tracing")
    assert (done.code, done.out) == (2, "")
    assert done.err == "stalloc run: STALLOC_MODE must be one of Torch, Trace, Alloc, Auto: 'Tracing'\n"


def test_a_script_that_does_not_exist_ends_run_with_two(tmp_path: Path) -> None:
    done = under_stalloc("absent.py", cwd=tmp_path)
    assert (done.code, done.err) == (2, "stalloc run: no such script: 'absent.py'\n")


def test_run_passes_its_options_on_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os; print([os.environ.get('STALLOC_' + n) for n in ('MODE', 'MODEL_INFO_PATH', 'DEVICE')])"
    )
    done = under_stalloc("--mode", "torch", "--dir", "run1", "--device", "cpu", "a.py", cwd=tmp_path)
    assert done.out == "['Torch', 'run1', 'cpu']\n"


def test_the_planners_commands_get_their_arguments_as_they_are(tmp_path: Path) -> None:
    planner = tmp_path / "stalloc-planner"
    planner.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 5\n')
    planner.chmod(0o755)
    for command in ("plan", "dump", "pack", "check"):
        flag = "--help" if command == "pack" else "--refine"  # to the help of the others something is added
        done = run_python(
            "-m", "stalloc", command, flag, "a b", "--json", environment={"STALLOC_LIB_PATH": str(tmp_path)}
        )
        assert (done.code, done.out) == (5, f"{command}|{flag}|a b|--json|")


def test_a_planner_that_cannot_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stalloc-planner").write_text("")
    done = run_python("-m", "stalloc", "plan", "x", environment={"STALLOC_LIB_PATH": str(tmp_path)})
    assert done.code == 1
    assert "cannot run" in done.err


def test_info_tells_what_fits(fake: FakeProcess) -> None:
    facts = json.loads(fake.python("-m", "stalloc", "info", "--json").out)
    assert facts["torch"] == "2.11.0+cu130"
    assert facts["libstalloc"]["version"] == "9.9.9"
    assert facts["adapter"]["fits_torch"] is True
    other = json.loads(fake.python("-m", "stalloc", "info", "--json", FAKE_TORCH_VERSION="2.12.0").out)
    assert other["adapter"]["fits_torch"] is False
    assert other["adapter"]["built_for"] == "2.11.0"
    text = fake.python("-m", "stalloc", "info", STALLOC_MODE="Alloc").out
    assert "built for torch 2.11.0, fits, with CUDA" in text
    assert "STALLOC_MODE" in text


def test_settings_come_from_a_file_variables_and_options_overrule_them(tmp_path: Path) -> None:
    told = "{k: v for k, v in os.environ.items() if k.startswith('STALLOC_') and k != 'STALLOC_OWNER'}"
    (tmp_path / "told.py").write_text(f"import json, os; print(json.dumps({told}))")
    settings = {"mode": "Torch", "model_info_path": "a", "trace_steps": "2:5", "trace_ranks": [0, 3], "log_steps": 7}
    (tmp_path / "c.json").write_text(json.dumps({**settings, "nvtx": True, "trace_names": False}))
    words = ("-m", "stalloc", "run", "--config", "c.json", "--dir", "b", "told.py")
    done = run_python(*words, environment={"STALLOC_LOG_STEPS": "0"}, cwd=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "STALLOC_MODE": "Torch",
        "STALLOC_MODEL_INFO_PATH": "b",
        "STALLOC_TRACE_STEPS": "2:5",
        "STALLOC_TRACE_RANKS": "0,3",
        "STALLOC_LOG_STEPS": "0",
        "STALLOC_NVTX": "1",
        "STALLOC_TRACE_NAMES": "0",
    }


def test_settings_may_be_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "told.py").write_text("import os; print(os.environ['STALLOC_TRACE_RANKS'], os.environ['STALLOC_NVTX'])")
    (tmp_path / "c.yaml").write_text("mode: Torch\ntrace_ranks: [0, 3]\nnvtx: true\n")
    assert under_stalloc("--config", "c.yaml", "told.py", cwd=tmp_path).out == "0,3 1\n"
    (tmp_path / "c.yaml").write_text("mode: [")
    done = under_stalloc("--config", "c.yaml", "told.py", cwd=tmp_path)
    assert (done.code, done.err.startswith("stalloc run: c.yaml: ")) == (2, True)


def test_yaml_that_cannot_be_read_here_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ImportError")
    (tmp_path / "c.yml").write_text("mode: Torch\n")
    path = f"{tmp_path}:{ROOT / 'patches'}"
    words = ("-m", "stalloc", "run", "--config", "c.yml", "told.py")
    done = run_python(*words, environment={"PYTHONPATH": path}, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == "stalloc run: c.yml: YAML needs `pip install pyyaml`; a .json file needs nothing\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "c.json: Expecting"),
        ("[]", "expected an object, found list"),
        ('{"steps": 3, "mode": "Trace"}', "no setting is called steps; there are auto_wait, device, "),
        ('{"trace_ranks": {"a": 1}}', 'trace_ranks must be a text, a number, true, false or a list of these: {"a": 1}'),
        ('{"mode": "Tracing"}', "STALLOC_MODE must be one of Torch, Trace, Alloc, Auto: 'Tracing'"),
        (None, "No such file"),
    ],
)
def test_settings_that_are_wrong_are_named(content: Optional[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    if content is not None:
        (tmp_path / "c.json").write_text(content)
    done = under_stalloc("--config", "c.json", "script.py", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
