"""The command line as a whole: what every command has, its pages, its ends."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, Finished, Training, clean_environment, run_python
from stalloc import cli
from stalloc.core.variables import VARIABLES

PAGE = ROOT / "docs" / "commands.md"
# What help may begin with: an order, whose subject is stalloc.
_ORDERS = """
accept add change check choose compare complete compute do draw emit end give keep learn leave lend let limit list load
look make move name pack plan print put read record remove replace run search serve show split take trace treat wait
wake write
"""
VERBS = frozenset(_ORDERS.split())
MOST_WORDS = 25  # of a sentence
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


def faults(text: str) -> list[str]:
    """Of a help text: a beginning without a verb, and sentences that are too long."""
    first = re.sub(r"^for tests: ", "", text).split()[0]
    found = [] if first in VERBS else [f"begins with {first!r}: {text}"]
    return found + long_sentences(re.sub(r"\([^)]*\)", "", text))


def long_sentences(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.;:?])\s+", re.sub(r"\n  +[^\n]*", "", text))
    return [sentence for sentence in sentences if len(sentence.split()) > MOST_WORDS]


@pytest.mark.parametrize("name", [*OWN, ""])
def test_help_is_orders_in_short_sentences(name: str) -> None:
    parser = parsers()[name] if name else cli.build_parser()
    helps = [action.help for action in parser._actions if action.help and action.dest != "help"]
    assert helps
    assert [fault for text in helps for fault in faults(text)] == []
    assert long_sentences((parser.epilog or "").partition("examples:\n")[0]) == []


def test_what_commands_and_variables_do_begins_with_a_verb() -> None:
    texts = [*cli.COMMANDS.values(), *(variable.meaning for variable in VARIABLES.values())]
    assert [fault for text in texts for fault in faults(text)] == []
    assert [row.name for row in VARIABLES.values() if long_sentences(row.details)] == []


def test_help_without_a_verb_and_long_sentences_are_refused() -> None:
    assert faults("of it, to leave free (default: 1G)") == ["begins with 'of': of it, to leave free (default: 1G)"]
    assert len(faults("show " + "word " * 25)) == 1
    assert faults("show " + "word " * 24) == []
    assert long_sentences("A short one. " + "word " * 25 + "word.") != []


@pytest.mark.parametrize("name", OWN)
def test_the_examples_of_help_are_understood(name: str) -> None:
    for example in cli.module_of(name).EXAMPLES:
        words = example.partition(" > ")[0].partition(" -- ")[0].split()
        if name == "run":
            words = cli.module_of(name).split(words)[0]
        assert cli.build_parser().parse_args(words).command == name


@pytest.mark.parametrize(
    ("word", "imported"), [("--help", []), ("runs", ["clean", "kept_runs", "many_ranks", "options", "runs"])]
)
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


RANKED = ("status", "plan", "report", "diff", "advise", "whatif", "fit", "export")


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
    assert [line for line in done.stderr.splitlines() if "the next version removes this command" not in line] == []


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
    lines, known = done.err.strip().splitlines(), {**cli.COMMANDS, **cli.GOING}
    last, told = lines[-1], [line for line in lines if "the next version removes this command" not in line]
    assert last.startswith((f"stalloc {words[0]}: " if words and words[0] in known else "stalloc: ", "`stalloc"))
    assert "Traceback" not in done.err
    assert "stalloc-planner" not in "".join(told)


def test_shells_complete_commands_and_the_planners_options(build: Path) -> None:
    pytest.importorskip("shtab")
    done = run_python("-m", "stalloc", "--completion", "bash", environment={"STALLOC_LIB_PATH": str(build)})
    assert done.code == 0, done.err
    for word in ("whatif", "--micro-batch", "--time-limit", "--draw"):
        assert word in done.out
    assert "synth" not in done.out


def test_completion_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError")
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'patches'}"}
    done = run_python("-m", "stalloc", "--completion", "bash", environment=environment)
    assert (done.code, done.err) == (1, "stalloc --completion: completion needs shtab: pip install shtab\n")


# What goes, and what to type instead ---------------------------------------------------------------------------------


def without_note(done: Finished, name: str) -> list[str]:
    """What is on stderr after the one line that says what to type."""
    first, *rest = done.err.splitlines()
    assert first == f"stalloc {name}: the next version removes this command; instead: {cli.GOING[name]}"
    return rest


@pytest.mark.parametrize("name", list(cli.GOING))
def test_what_goes_still_has_its_help_and_says_what_to_type(name: str, build: Path) -> None:
    done = run_python("-m", "stalloc", name, "--help", environment={"STALLOC_LIB_PATH": str(build)})
    assert (done.code, without_note(done, name)) == (0, [])
    assert "usage: stalloc" in done.out
    assert f"`{name}`" not in cli.build_parser().format_help()
    instead = cli.GOING[name].split()
    assert instead[0] == "stalloc-planner" or instead[1].startswith("--") or instead[1] in cli.COMMANDS


@pytest.mark.parametrize(
    ("going", "instead"),
    [
        (["leaks", "DIR"], ["report", "DIR", "--leaks"]),
        (["leaks", "DIR", "--json"], ["report", "DIR", "--leaks", "--json"]),
        (["completion", "bash"], ["--completion", "bash"]),
    ],
)
def test_what_goes_prints_what_its_successor_prints(
    going: list[str], instead: list[str], build: Path, planned: Training
) -> None:
    if "completion" in going:
        pytest.importorskip("shtab")
    old, new = (
        run_python(
            *("-m", "stalloc", *(str(planned.info) if word == "DIR" else word for word in words)),
            environment={"STALLOC_LIB_PATH": str(build)},
        )
        for words in (going, instead)
    )
    assert (old.code, new.code, new.err, without_note(old, going[0])) == (0, 0, "", [])
    assert old.out == new.out != ""


def test_a_summary_is_part_of_the_status(planned: Training) -> None:
    words = ("-m", "stalloc", "summary", str(planned.info))
    old, rows = run_python(*words), json.loads(run_python(*words, "--json").out)["ranks"]
    new = run_python("-m", "stalloc", "status", str(planned.info))
    assert new.out == f"{planned.info}\n{old.out}"
    assert (new.err, without_note(old, "summary")) == ("", [])
    found = json.loads(run_python("-m", "stalloc", "status", str(planned.info), "--json").out)
    assert (found["ranks"], found["summaries"]) == ([], rows)


def test_what_is_installed_is_part_of_the_doctors_json(build: Path) -> None:
    old, new = (
        run_python("-m", "stalloc", name, "--json", environment={"STALLOC_LIB_PATH": str(build)})
        for name in ("info", "doctor")
    )
    facts = json.loads(new.out)["installed"]
    facts["environment"].setdefault("STALLOC_MODE", None)
    assert facts == json.loads(old.out)
    assert facts["adapter"]["fits_torch"] is True


def test_a_trace_in_text_is_what_dump_prints(build: Path, planned: Training, tmp_path: Path) -> None:
    environment = {"STALLOC_LIB_PATH": str(build)}
    dumped = run_python("-m", "stalloc", "dump", str(planned.info), environment=environment)
    words = ("export", str(planned.info), "-f", "text", "-o", str(tmp_path / "text"))
    assert run_python("-m", "stalloc", *words, environment=environment).code == 0
    assert (tmp_path / "text").read_text() == dumped.out
    assert "Iteration Index : 1" in dumped.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plna"], "there is no command plna: did you mean plan?"),
        (["report", "x", "--laeks"], "--laeks: did you mean --leaks?"),
        (["fit", "x", "--memroy=3G"], "--memroy: did you mean --memory?"),
        (["--versoin"], "--versoin: did you mean --version?"),
        (["fit", "x", "--mem=lots"], "expected a size as 80G or 40960M: 'lots'"),
        (["report", "x", "--leaks", "--md"], "--leaks goes with --rank and --json alone"),
    ],
)
def test_what_is_mistyped_is_told_with_the_nearest(words: list[str], told: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(words)
    assert leaving.value.code == 2
    assert capsys.readouterr().err.endswith(f"{told}\n")


def test_help_has_a_line_for_each_command_that_fits_a_terminal(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [name for name in cli.COMMANDS if f"  {name:<8}{cli.COMMANDS[name]}" not in lines] == []
    assert [group for group in cli.GROUPS if f"{group}:" not in lines] == []
    assert [line for line in lines if len(line) > 80 and line.startswith("  ")] == []
