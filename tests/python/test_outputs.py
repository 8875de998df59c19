"""Where commands write: a path that is mistyped is refused before anything is read, and makes no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import ROOT
from stalloc import cli

FILES = [
    (["report", "run1"], "-o"),
    (["report", "run1", "--md"], "-o"),
    (["report", "run1", "--json"], "--output"),
    (["diff", "run1", "run2"], "--html"),
    (["export", "run1", "--format=csv"], "-o"),
    (["fit", "run1", "--memory=80G"], "--output"),
]
FOLDERS = [(["report", "run1", "--per-rank"], "-o"), (["import", "run.pickle"], "-o")]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("words", "option"), FILES)
def test_a_file_is_written_into_a_folder_that_is_there(
    words: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, folder = tmp_path / "reprots", tmp_path / "reports"
    folder.mkdir()
    assert f"there is no {missing}" in refused([*words, option, str(missing / "out.htm")], capsys)
    assert "expected a file, found a folder" in refused([*words, option, str(folder)], capsys)
    assert "expected a file, found a folder" in refused([*words, option, f"{folder}/new/"], capsys)
    assert list(tmp_path.iterdir()) == [folder]
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("words", "option"), FOLDERS)
@pytest.mark.parametrize("name", ["out.htm", "out.html", "run1.trace", "missing/run1"])
def test_a_folder_is_made_within_one_that_is_there_and_has_no_files_name(
    words: list[str], option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "expected a folder" in refused([*words, option, str(tmp_path / name)], capsys)
    (tmp_path / "file").touch()
    assert "expected a folder, found the name of a file" in refused([*words, option, str(tmp_path / "file")], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("real_libraries")
def test_every_command_with_an_output_is_in_these_lists(trace: Path, tmp_path: Path) -> None:
    listed = {words[0] for words, _ in FILES + FOLDERS}
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("\n## stalloc ")[1:]
    assert {text.split()[0] for text in page if "| `--output" in text or "| `--html FILE`" in text} == listed
    assert cli.main(["report", str(trace), "--per-rank", "-o", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "rank00000" / "memory.log").is_file()
