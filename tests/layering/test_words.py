"""One voice: words that a stranger has to read twice are refused in comments, docstrings, messages and pages."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A word, and what to write instead.
REFUSED = {
    "behind": "after (in time), next, below",
    "beside": "without a slot, next to, as well as, in addition to",
    "told|tells?|telling": "reports, shows, records, says",
    "asks?|asked|asking": "requests, queries, checks",
    "hears?|heard|hearing": "is notified of",
    "whoever|whomever": "a name for who it is",
    "rooms?": "space, a free range, a limit, a slot",
}
_WORDS = {re.compile(rf"\b({words})\b", re.IGNORECASE): instead for words, instead in REFUSED.items()}
FOLDERS = ("allocator", "planner", "proto", "patches", "bench", "examples", "scripts")
_LEFT_OUT = ("bench/results/", "bench/corpus/")
_NAMES = re.compile(r"`[^`]*`|--[a-z][\w-]*|\b[\w-]+\.(?:cc|h|py|md|js)\b|\b\w+\(\)|\b[a-z]+(?:-[a-z]+)+\b")


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"\]\([^)]*\)", "]", line)


_HOLES = re.compile(r"\$?\{[^{}]*\}")  # in templates: code
_PARTS_OF_C = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|`[^`]*`', re.DOTALL)


def _of_c(text: str) -> Iterator[tuple[int, str]]:
    """Comments, and literals of several words."""
    for found in _PARTS_OF_C.finditer(text):
        part, first = found.group().replace("`", '"'), text.count("\n", 0, found.start()) + 1
        if part.startswith("/") or " " in part:
            yield from enumerate(_HOLES.sub(" ", part).splitlines(), first)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        literal = token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING")
        if token.type == tokenize.COMMENT or (literal and " " in token.string):
            yield from enumerate(_HOLES.sub(" ", token.string).splitlines(), token.start[0])


def _of_shell(text: str) -> Iterator[tuple[int, str]]:
    yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if re.search(r"(^|\s)#", line))


def prose(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Lines that people read, with their numbers and without names of files, options and functions."""
    head = text[:60].splitlines()[:1]
    if name.endswith((".py", ".in")) or (head and "python" in head[0]):
        lines = _of_python(text)
    elif name.endswith((".cc", ".h", ".c", ".js", ".proto")):
        lines = _of_c(text)
    else:
        lines = _of_markdown(text) if name.endswith(".md") else _of_shell(text)
    yield from ((number, _NAMES.sub(" ", line)) for number, line in lines)


def refused(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number}: {word} (write: {instead}): {line.strip()}"
        for number, line in prose(name, text)
        for _, word, instead in sorted(
            (found.start(), found.group(), instead)
            for pattern, instead in _WORDS.items()
            for found in pattern.finditer(line)
        )
    ]


def _files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "--", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    kinds = (".md", ".cc", ".h", ".c", ".js", ".py", ".in", ".proto", ".txt", ".cmake", "")
    return [
        name for name in listed.stdout.splitlines() if Path(name).suffix in kinds and not name.startswith(_LEFT_OUT)
    ]


def test_no_file_has_a_word_that_misleads() -> None:
    files = _files()
    assert len(files) > 500
    assert [line for name in files for line in refused(name, (ROOT / name).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.md", "It comes behind it.\n`behind` --beside\n```\ntold\n```\n[it](told.md)", ["behind"]),
        (
            "a.cc",
            'int behind = 1;  // asked for\nf("behind", "is told");\n/* room\n for it */',
            ["asked", "told", "room"],
        ),
        ("a.js", "const told = `leaves it behind`;", ["behind"]),
        ("a.py", '"""Whoever asks."""\ntold = f"it tells {beside}"  # heard\n', ["Whoever", "asks", "tells", "heard"]),
        ("run", "#!/usr/bin/env bash\nbeside x  # runs beside it\ntold\n", ["beside", "beside"]),
    ],
)
def test_words_are_found_in_prose_alone(name: str, text: str, words: list[str]) -> None:
    assert [line.split()[1] for line in refused(name, text)] == words
