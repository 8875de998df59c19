"""The hand-written pages: each begins with a command and its output, in words that a stranger reads once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from processes import ROOT
from stalloc import cli

GENERATED = ("commands.md", "variables.md", "python-api.md")  # by scripts/reference
ALL = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [path for path in ALL if path.name not in GENERATED]
# What the word stands for, and what to write instead.
REFUSED = {
    "behind": "after",
    "beside": "next to, without a slot, at the same time",
    "told": "reported, printed",
    "hear": "is notified",
    "hears": "is notified",
    "anew": "again",
    "whoever": "what, who",
    "room": "free range, free memory",
}
MOST_WORDS = 28
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


def prose(path: Path) -> str:
    return _CODE.sub("`code`", _FENCE.sub("", path.read_text(encoding="utf-8")))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", ALL, ids=name)
def test_a_page_begins_with_a_command_and_its_output(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n## ")[0]
    fences = re.findall(r"^```(\w*)$", first, re.MULTILINE)
    assert len(fences) >= 4, "a command and its output, each in a fence, stand before the first heading"
    assert fences[2] == "text", fences


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=name)
def test_a_page_has_none_of_the_refused_words(path: Path) -> None:
    words = set(re.findall(r"[\w-]+", prose(path).lower()))
    if path.name == "concepts.md":
        words.discard("room")  # the glossary says that code and messages have it
    assert {word: REFUSED[word] for word in words & set(REFUSED)} == {}


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=name)
def test_sentences_are_short(path: Path) -> None:
    lines = [line for line in prose(path).splitlines() if not line.lstrip().startswith(("|", "<", "#"))]
    blocks = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", "\n".join(lines))
    long = [s for block in blocks for s in re.split(r"(?<=[.:;?!])\s", block) if len(s.split()) > MOST_WORDS]
    assert long == []


def commands(path: Path) -> list[str]:
    """What the page's fences run of `stalloc`, without variables in front, comments and the prompt of a transcript."""
    found = []
    for fence in _FENCE.findall(path.read_text(encoding="utf-8")):
        for line in fence.splitlines():
            parts = re.split(r"&&|;|\|", line.removeprefix("$ ").split("  #")[0])
            stripped = (re.sub(r"^\s*(?:[A-Z_]+=\S+\s+)+", "", part).strip().rstrip("&") for part in parts)
            found += [one for one in stripped if re.match(r"stalloc [a-z]", one)]
    return found


@pytest.mark.parametrize("path", [ROOT / "README.md", *ALL], ids=name)
def test_commands_of_a_page_are_understood(path: Path) -> None:
    for command in commands(path):
        words = [word for word in shlex.split(command)[1:] if word != "..."]
        if words[0] not in cli.COMMANDS:
            continue  # output that begins with the name
        if words[0] == "run":
            words = cli.module_of("run").split(words)[0]
        try:
            cli.build_parser().parse_args(words)
        except SystemExit as end:
            pytest.fail(f"{command}: exit code {end.code}")
