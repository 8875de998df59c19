"""Sizes as people write them: one grammar, which the table of the C++ reader's test holds here, too."""

from __future__ import annotations

import argparse

import pytest

from processes import ROOT
from stalloc import cli
from stalloc.core import sizes

_TABLE = ROOT / "tests" / "runtime" / "sizes.txt"
CASES = [
    line[1:].rsplit('" ', 1)
    for line in _TABLE.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def read(text: str) -> str:
    try:
        return str(sizes.parse(text))
    except argparse.ArgumentTypeError:
        return "no size"


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_sizes_are_read_as_the_shared_table_says(text: str, expected: str) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("80", "did you mean 80G"),
        ("lots", "expected a size as 80G or 40960M"),
        ("-1G", "expected a size"),
        ("99999999999999999999G", "expected a size of less than 16 EiB"),
    ],
)
def test_what_is_no_size_is_refused_with_what_would_be(text: str, told: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=told):
        sizes.parse(text)


@pytest.mark.parametrize("command", ["fit", "whatif"])
@pytest.mark.parametrize("memory", ["0", "0G", "-1", "-80G", "12Q", "99999999999999999999G", "80", ""])
def test_a_memory_that_no_device_has_is_bad_usage(
    command: str, memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "run1", f"--memory={memory}"])
    assert ended.value.code == 2
    assert "argument --memory: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["whatif", "run1", "--memory=80G", "--micro-batch"],
        ["fit", "run1", "--memory=80G", "--micro-batch"],
        ["fit", "run1", "--memory=80G", "--accumulation"],
        ["fit", "run1", "--memory=80G", "--rows"],
        ["fit", "run1", "--memory=80G", "--sequence"],
        ["fit", "run1", "--memory=80G", "--bus-bandwidth"],
        ["advise", "run1", "--gpus"],
        ["advise", "run1", "--bus"],
        ["estimate", "run1", "--world-size"],
    ],
)
@pytest.mark.parametrize("count", ["0", "-3", "nan", "many"])
def test_a_count_that_nothing_can_have_is_bad_usage(
    words: list[str], count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*words[:-1], f"{words[-1]}={count}"])
    assert ended.value.code == 2
    assert f"argument {words[-1]}: " in capsys.readouterr().err
