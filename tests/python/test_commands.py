"""The command line as a whole: what every command has, its pages, its ends."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import ROOT, clean_environment, run_python
from stalloc import cli
from stalloc.core import sizes

PAGE = ROOT / "docs" / "commands.md"
OWN = sorted(set(cli.COMMANDS) - cli.VERBATIM)


def section(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"\n## stalloc {name}\n")[2].partition("\n## ")[0]


def parsers() -> dict[str, argparse.ArgumentParser]:
    actions = cli.build_parser()._actions
    found = next(action for action in actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def test_the_pages_made_from_the_code_are_what_the_code_says(build: Path) -> None:
    done = run_python(str(ROOT / "scripts" / "reference"), "--check", environment={"STALLOC_LIB_PATH": str(build)})
    assert (done.code, done.out) == (0, ""), done.err


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_an_example_and_every_option_a_place_in_the_page(name: str, build: Path) -> None:
    done = run_python("-m", "stalloc", name, "--help", environment={"STALLOC_LIB_PATH": str(build)})
    assert (done.code, done.err) == (0, "")
    examples = done.out.partition("examples:\n")[2].strip().splitlines()
    assert examples
    for example in examples:
        assert example.strip().startswith(f"stalloc {name}"), example
        assert example.strip() in section(name)
    for option in set(re.findall(r"(?<![\w-])--[a-z][\w-]+", done.out.partition("examples:\n")[0])) - {"--help"}:
        assert option in section(name), option


@pytest.mark.parametrize("name", OWN)
def test_every_argument_says_what_it_is(name: str) -> None:
    assert [action.dest for action in parsers()[name]._actions if not action.help] == []


@pytest.mark.parametrize("name", OWN)
def test_the_examples_of_help_are_understood(name: str) -> None:
    for example in cli.module_of(name).EXAMPLES:
        words = example.partition(" > ")[0].partition(" -- ")[0].split()
        if name == "run":
            words = cli.module_of(name).split(words)[0]
        assert cli.build_parser().parse_args(words).command == name


@pytest.mark.parametrize(("word", "imported"), [("--help", []), ("runs", ["many_ranks", "options", "runs"])])
def test_the_command_that_runs_alone_is_imported(word: str, imported: list[str]) -> None:
    program = f"""
import contextlib, sys
from stalloc import cli
with contextlib.suppress(SystemExit):
    cli.main(["{word}"])
print(*sorted(name.rpartition(".")[2] for name in sys.modules if name.startswith("stalloc.tools.commands.")))
print(*[name for name in sys.modules if name.startswith("stalloc.tools.") and ".commands" not in name])"""
    *_, commands, others = run_python("-c", program).out.splitlines()
    assert (commands.split(), others) == (imported, "")


RANKED = (
    "status",
    "summary",
    "plan",
    "report",
    "diff",
    "leaks",
    "advise",
    "whatif",
    "fit",
    "estimate",
    "export",
    "dump",
    "check",
)


@pytest.mark.parametrize("name", RANKED)
def test_a_rank_can_be_named_wherever_a_directory_of_ranks_is_taken(name: str) -> None:
    assert re.search(r"`--rank[ =]R`", section(name))


@pytest.mark.parametrize("command", [["plan", "--help"], ["--help"], ["whatif", "--help"], ["dump", "DIR"]])
def test_a_reader_that_has_seen_enough_is_no_error(command: list[str], build: Path, planned: object) -> None:
    words = [str(getattr(planned, "info")) if word == "DIR" else word for word in command]  # noqa: B009
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "stalloc", *words],
        env=clean_environment({"STALLOC_LIB_PATH": str(build)}),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", "--no-such"], 2),
        (["plan", "nowhere"], 1),
        (["report", "nowhere"], 1),
        (["dump", "nowhere"], 1),
        (["check", "nowhere", "nowhere"], 1),
        (["summary", "nowhere"], 1),
        (["status", "nowhere"], 1),
        (["oom", "nowhere"], 1),
        (["leaks", "nowhere"], 1),
        (["nonsense"], 2),
        ([], 2),
        (["whatif", "nowhere"], 2),
        (["run"], 2),
        (["run", "nowhere.py"], 2),
    ],
)
def test_exit_codes_and_prefixes_are_the_same_everywhere(
    words: list[str], code: int, build: Path, tmp_path: Path
) -> None:
    done = run_python("-m", "stalloc", *words, environment={"STALLOC_LIB_PATH": str(build)}, cwd=tmp_path)
    assert (done.code, done.out) == (code, "")
    last = done.err.strip().splitlines()[-1]
    assert last.startswith((f"stalloc {words[0]}: " if words and words[0] in cli.COMMANDS else "stalloc: ", "`stalloc"))
    assert "Traceback" not in done.err
    assert "stalloc-planner" not in done.err


@pytest.mark.parametrize(
    ("text", "size"),
    [("80G", 80 << 30), ("1.5 GiB", 3 << 29), ("40960m", 40960 << 20), ("512B", 512), ("85899345920", 80 << 30)],
)
def test_sizes_have_binary_units(text: str, size: int) -> None:
    assert sizes.parse(text) == size


@pytest.mark.parametrize(
    ("text", "told"), [("80", "did you mean 80G"), ("lots", "expected a size"), ("-1G", "expected")]
)
def test_a_size_that_nobody_can_mean_is_refused(text: str, told: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=told):
        sizes.parse(text)


def test_shells_complete_commands_and_the_planners_options(build: Path) -> None:
    pytest.importorskip("shtab")
    done = run_python("-m", "stalloc", "completion", "bash", environment={"STALLOC_LIB_PATH": str(build)})
    assert done.code == 0, done.err
    for word in ("whatif", "--micro-batch", "--time-limit", "--draw"):
        assert word in done.out


def test_completion_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'patches'}"}
    done = run_python("-m", "stalloc", "completion", "bash", environment=environment)
    assert (done.code, done.err) == (1, "stalloc completion: completion needs shtab: pip install shtab\n")
