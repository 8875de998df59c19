"""What commands print as JSON is what docs/json-schema.json says of each, which scripts/reference makes of the types.

sleep, oom, runs and a second trace are held to it where their own tests have such a process, report, cache or trace.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import ROOT, Training
from schemas import SCHEMA, expect_document
from stalloc import cli
from stalloc.tools import documents


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, object]:
    assert cli.main([*words, "--json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_every_command_that_prints_json_has_a_type() -> None:
    pages = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("\n## stalloc ")[1:]
    has = {page.split()[0] for page in pages if "| `--json`" in page}
    assert has == {name.split()[0] for name in documents.DOCUMENTS}
    assert list(SCHEMA["properties"]) == list(documents.DOCUMENTS)


@pytest.mark.usefixtures("real_libraries")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("report", []),
        ("report --leaks", []),
        ("advise", ["--all"]),
        ("whatif", ["--memory=80G"]),
        ("whatif", ["--memory=1M"]),
        ("fit", ["--memory=1T", "--keep-micro-batch"]),
        ("fit", ["--memory=1T", "--sequence=64"]),
        ("status", []),
        ("doctor", None),
        ("runs", None),
    ],
)
def test_a_command_prints_what_its_schema_says(
    name: str, options: list[str], planned: Training, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *more = name.split()
    about = [] if options is None else [str(planned.info), *more, *options]
    expect_document(name, printed(capsys, command, *about))


@pytest.mark.usefixtures("real_libraries")
def test_a_synthetic_trace_is_told_as_the_schema_says(
    planned: Training, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_document("report", printed(capsys, "report", str(trace)))
    expect_document("diff", printed(capsys, "diff", str(planned.info), str(trace)))


def test_plans_are_told_as_the_schema_says(planned: Training) -> None:
    expect_document("plan", json.loads(planned.try_plan("--json").out))


@pytest.mark.usefixtures("real_libraries")
def test_files_that_move_are_told_as_the_schema_says(
    planned: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.pickle"
    told = printed(capsys, "export", str(planned.info), "--format=snapshot", "-o", str(file))
    expect_document("export", told)
    expect_document("import", printed(capsys, "import", str(file), "-o", str(tmp_path / "again")))


def test_a_document_with_another_key_or_type_is_found() -> None:
    good = {"output": "a", "format": "csv", "bytes": 1}
    expect_document("export", good)
    for wrong, told in (
        ({**good, "more": 1}, "export.more: is not in the schema"),
        ({**good, "bytes": True}, "export.bytes: expected integer, found True"),
        ({"output": "a", "bytes": 1}, "export.format: is missing"),
    ):
        with pytest.raises(AssertionError, match=told):
            expect_document("export", wrong)
