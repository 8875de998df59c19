"""An exported snapshot in PyTorch's own page: torch/utils/viz/MemoryViz.js, which no package of torch brings along.

    STALLOC_MEMORY_VIZ=MemoryViz.js STALLOC_D3=d3.min.js pytest tests/python/test_memory_viz_page.py

MemoryViz.js is in PyTorch's source tree; d3 version 5 (Debian: node-d3) stands in for what it imports from a network.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from processes import SCRIPTS, Training
from stalloc import cli

VIEWS = ("Active Memory Timeline", "Allocator State History", "Active Cached Segment Timeline")


@pytest.fixture(scope="module")
def viewer() -> str:
    """The page's script with d3 in it."""
    files = [os.environ.get(name, "") for name in ("STALLOC_D3", "STALLOC_MEMORY_VIZ")]
    if not all(files):
        pytest.skip("STALLOC_MEMORY_VIZ and STALLOC_D3 name PyTorch's MemoryViz.js and d3 5")
    d3, script = (Path(file).read_text() for file in files)
    script = re.sub(r"import \* as d3 from [^\n]+", "const d3 = globalThis.d3;", script)
    script = re.sub(r"import (\{[^}]*\}) from [^\n]+", r"const \1 = globalThis.d3;", script)
    assert "https://cdn" not in script
    return f"{d3};\n{script}"


def test_its_views_draw_an_exported_run(viewer: str, build: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    viz: Any = pytest.importorskip("torch.cuda._memory_viz")
    training = Training(build, tmp_path)
    script = [str(SCRIPTS / "named_training.py"), "flat", str(tmp_path / "expected.json"), "3"]
    training.start_plain("Trace", "-m", "stalloc", "run", *script, STALLOC_TRACE_STACKS="1").good()
    exported = tmp_path / "run.pickle"
    trace = training.info / "trace" / "rank00000.trace"
    assert cli.main(["export", str(trace), "-f", "snapshot", "-o", str(exported)]) == 0
    page_file = tmp_path / "page.html"
    page_file.write_text(viz.trace_plot(pickle.loads(exported.read_bytes())))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 900})
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.route("**/MemoryViz.js", lambda route: route.fulfill(body=viewer, content_type="text/javascript"))
        page.goto(page_file.as_uri())
        choice = page.locator("select").nth(1)
        choice.wait_for()
        assert tuple(choice.locator("option").all_inner_texts()) == VIEWS
        for view, shapes in zip(VIEWS, ("polygon", "rect", "polygon")):
            choice.select_option(label=view)
            page.locator(f"svg {shapes}:visible").first.wait_for()
        choice.select_option(label=VIEWS[0])
        assert page.locator("svg polygon:visible").count() > 10, "blocks"
        page.locator("svg polygon:visible").nth(2).dispatch_event("mouseover", {"bubbles": True})
        page.get_by_text("named_training.py").first.wait_for()
        assert wrong == []
        browser.close()
