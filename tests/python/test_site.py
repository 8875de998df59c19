"""The documentation as a site: links are the repository's, and become the site's. The gate builds it (scripts/test)."""

from __future__ import annotations

import base64
import hashlib
import importlib.machinery
import importlib.util
import json
import re
import sys
import types
import zipfile
from pathlib import Path
from typing import Any, Optional

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


def test_steps_of_a_full_card_are_a_table_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = importlib.machinery.SourceFileLoader("figures", str(ROOT / "scripts" / "figures"))
    spec = importlib.util.spec_from_loader("figures", loader)
    assert spec is not None
    figures = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "figures", figures)
    loader.exec_module(figures)

    def attempt(percent: float, name: str, ratio: Optional[float], retries: int = 0) -> dict[str, Any]:
        outcome = "trained" if ratio else "out of memory"
        counted = {"mean_step_ratio": ratio, "num_alloc_retries": retries, "arena_changes": None}
        return {"allocator": name, "cap_over_live": 100 / percent, "outcome": outcome, **counted}

    tried = [attempt(90, "native", None), attempt(90, "expandable", 1.0), attempt(99.5, "expandable", 1.25, 3)]
    tried += [attempt(percent, "stalloc", 1.0) for percent in (90, 99.5)]
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "cliff_two_words.json").write_text(json.dumps({"attempts": tried}))
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    lines = figures.cliff_table().splitlines()[2:]
    assert lines == [
        "| two words | 90 % | out of memory | 1.00 | 1.00 |",
        "| two words | 99.5 % | out of memory | 1.25, 3 retries | 1.00 |",
    ], "a smaller card than one that was too small is too small"
    drawn = figures.cliff_picture(figures.cliffs(), figures.THEMES["light"])
    assert (drawn.count("<circle"), drawn.count("l8 8m0 -8l-8 8")) == (4, 2)


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


def test_a_wheels_description_has_absolute_links_and_pictures(tmp_path: Path) -> None:
    wheel, inside = tmp_path / "stalloc-1-py3-none-any.whl", "stalloc-1.dist-info"
    text = (
        '<source srcset="docs/a.svg"><img src="docs/b.svg">![c](docs/c.png) [d](docs/d.md#e) [f](https://x.y) [g](#h)'
    )
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr(f"{inside}/METADATA", text)
        made.writestr(f"{inside}/RECORD", f"{inside}/METADATA,sha256=x,1\n{inside}/RECORD,,\n")
    done = run_python(str(ROOT / "scripts" / "index_page"), str(wheel), "https://x.y/o/n/")
    assert (done.code, done.err) == (0, "")
    with zipfile.ZipFile(wheel) as read:
        metadata, record = read.read(f"{inside}/METADATA"), read.read(f"{inside}/RECORD").decode().splitlines()
    raw, page = "https://x.y/o/n/raw/HEAD/docs", "https://x.y/o/n/blob/HEAD/docs"
    pictures = f'<source srcset="{raw}/a.svg"><img src="{raw}/b.svg">![c]({raw}/c.png)'
    assert metadata.decode() == f"{pictures} [d]({page}/d.md#e) [f](https://x.y) [g](#h)"
    digest = base64.urlsafe_b64encode(hashlib.sha256(metadata).digest()).rstrip(b"=").decode()
    assert record == [f"{inside}/METADATA,sha256={digest},{len(metadata)}", f"{inside}/RECORD,,"]


def test_a_wheel_of_an_unknown_repository_stays_as_it_is(tmp_path: Path) -> None:
    program, nowhere = str(ROOT / "scripts" / "index_page"), {"STALLOC_REPOSITORY": "", "GIT_DIR": str(tmp_path)}
    done = run_python(program, str(tmp_path / "none.whl"), environment=nowhere)
    assert done.code == 0
    assert "no repository is known" in done.err
