"""The one table of STALLOC_* variables: nothing is read that is not in it, and a misspelt name is told once."""

from __future__ import annotations

import re
import sys

from processes import ROOT, FakeProcess, run_python
from stalloc.core.variables import GROUPS, INTERNAL, TOOLS, VARIABLES, misspelt

PAGE = ROOT / "docs" / "variables.md"
READ = re.compile(r'"(STALLOC_[A-Z0-9_]+)"')


def names_in(folder: str, *suffixes: str) -> set[str]:
    sources = [path for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    assert sources, folder
    return {name for path in sources for name in READ.findall(path.read_text(encoding="utf-8"))}


def test_all_that_the_allocator_and_the_package_read_is_in_the_table() -> None:
    read = names_in("allocator", ".cc", ".h")
    assert "STALLOC_MODE" in read
    assert read <= {*VARIABLES, *INTERNAL}
    table = ROOT / "patches" / "stalloc" / "core" / "variables.py"
    others = [path for path in (ROOT / "patches").rglob("*.py") if path != table]
    assert {name for path in others for name in READ.findall(path.read_text())} <= {*VARIABLES, *INTERNAL}


def test_what_the_table_says_of_readers_is_so() -> None:
    of_library = names_in("allocator", ".cc", ".h")
    of_table = {name for name, variable in VARIABLES.items() if variable.reader in ("C++", "both")}
    assert of_table == of_library - set(INTERNAL)


def test_all_that_tests_and_benchmarks_read_is_in_the_table_of_tools() -> None:
    asked = re.compile(r'(?:environ(?:\.get\(|\[|\.pop\()|getenv\(|FromEnvironment\()\s*"(STALLOC_[A-Z0-9_]+)"')
    sources = [path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*")]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.suffix in (".py", ".cc", ".h")]
    read = {name for text in texts for name in asked.findall(text)}
    assert read <= {*VARIABLES, *INTERNAL, *TOOLS}
    assert "STALLOC_BUILD_DIR" in read


def test_the_page_has_every_variable_in_a_row_of_its_own() -> None:
    rows = re.findall(r"^\| `(STALLOC_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted([*VARIABLES, *INTERNAL, *TOOLS])


def test_a_row_says_what_it_takes_and_what_it_means() -> None:
    for variable in (variable for group in GROUPS.values() for variable in group):
        assert variable.values, variable.name
        assert variable.meaning, variable.name
        assert variable.choices is None or all(
            f"`{choice}`" in variable.values or ".." in variable.values for choice in variable.choices
        )


def test_a_misspelt_name_is_known_by_its_nearest() -> None:
    told = misspelt(["STALLOC_MOED", "STALLOC_QUUX", "STALLOC_MODE", "STALLOC_OWNER", "STALLOC_BUILD_DIR", "PATH"])
    assert told == {"STALLOC_MOED": "STALLOC_MODE", "STALLOC_QUUX": None}


CHILD = f"import stalloc, subprocess; subprocess.run([{sys.executable!r}, '-c', 'import stalloc'], check=True)"


def test_a_run_is_told_once_of_what_nothing_reads(fake: FakeProcess) -> None:
    done = fake.python("-c", CHILD, STALLOC_MODE="Torch", STALLOC_TRACE_STEP="3", STALLOC_QUUX="1")
    assert done.code == 0
    assert done.err.splitlines() == [
        "[stalloc] rank 0 warning: STALLOC_QUUX is not read by anything: docs/variables.md has those that are",
        "[stalloc] rank 0 warning: STALLOC_TRACE_STEP is not read by anything: did you mean STALLOC_TRACE_STEPS?",
    ]


def test_other_ranks_say_nothing_of_it(fake: FakeProcess) -> None:
    assert fake.python("-c", "import stalloc", STALLOC_MODE="Torch", STALLOC_TRACE_STEP="3", RANK="1").err == ""


def test_without_a_mode_only_what_looks_like_one_of_ours_is_told() -> None:
    done = run_python("-c", "import stalloc", environment={"STALLOC_MOD": "Trace", "STALLOC_QUUX": "1"})
    assert done.err == "[stalloc] rank 0 warning: STALLOC_MOD is not read by anything: did you mean STALLOC_MODE?\n"
