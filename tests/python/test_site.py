"""The documentation as a site: links are the repository's, and become the site's. The gate builds it (scripts/test)."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from processes import ROOT, run_python

pytest.importorskip("mkdocs", reason="scripts/test installs mkdocs-material")
sys.path.insert(0, str(ROOT / "scripts"))
import site_hooks


def shown(markdown: str, uri: str = "reports.md") -> str:
    page: Any = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=uri))
    return site_hooks.on_page_markdown(markdown, page, None, None)


@pytest.mark.parametrize(
    ("uri", "written", "there"),
    [
        ("reports.md", "[a](advice.md#x)", "[a](advice.md#x)"),
        ("design/planner.md", "[a](../../planner/README.md)", "[a](../source/planner.md)"),
        ("source/allocator.md", "[a](engine/README.md#streams)", "[a](engine.md#streams)"),
        ("source/package.md", "[a](../docs/frameworks.md)", "[a](../frameworks.md)"),
        ("reports.md", "[`run.py`](../bench/train_gpt.py)", "`run.py`"),
        ("reports.md", "[a](../nowhere.md)", "[a](../nowhere.md)"),
        ("reports.md", "[a](https://example.org)", "[a](https://example.org)"),
        ("reports.md", "![a](report.png)", "![a](report.png)"),
        ("reports.md", "```\n[a](../bench/train_gpt.py)\n```\n", "```\n[a](../bench/train_gpt.py)\n```\n"),
    ],
)
def test_links_of_the_repository_become_those_of_the_site(uri: str, written: str, there: str) -> None:
    assert shown(written, uri) == there


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert len(text.encode()) <= 9 * 1024


def test_the_page_of_figures_is_short() -> None:
    assert len((ROOT / "docs" / "performance.md").read_text(encoding="utf-8").split()) <= 1500


def test_tables_and_pictures_are_what_the_results_say() -> None:
    done = run_python(str(ROOT / "scripts" / "figures"), "--check")
    assert (done.code, done.out) == (0, "")


def test_every_page_of_docs_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    missing = [page for page in pages if not re.search(rf": {re.escape(page)}$", nav, re.MULTILINE)]
    assert missing == []


@pytest.mark.parametrize("path", ["README.md", *site_hooks.ELSEWHERE.values()])
def test_links_of_pages_beside_the_code_lead_somewhere(path: str) -> None:
    folder = (ROOT / path).parent
    text = site_hooks._FENCE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    targets = [match["target"].partition("#")[0] for match in site_hooks._LINK.finditer(text)]
    files = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in files if not Path(folder / target).exists()] == []
