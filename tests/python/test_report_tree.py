"""The peak as a tree: full depth, right counts, layers that are alike as one part, and by call stack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from exports import STACKED, trace_of_text
from layered_runs import layered
from shown_page import Shown, report_of


def cells(page: Any) -> dict[str, list[str]]:
    """Of the icicle, by level: label and size."""
    found: dict[str, list[str]] = {}
    for cell in page.locator(".icicle .cell").all():
        label, size = cell.locator("span").text_content(), cell.locator("small").text_content()
        found.setdefault(cell.get_attribute("aria-level"), []).append(f"{label}: {size}")
    return found


@pytest.fixture(scope="module")
def layers(browser: Any, build: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Shown(browser, report_of(layered(build, tmp_path_factory.mktemp("layers") / "run"), build))


def test_layers_that_are_alike_are_one_part_which_opens(layers: Shown) -> None:
    page = layers.page
    shown = cells(page)
    assert shown["1"] == ["live at the peak: 133.00 MiB"]
    assert shown["2"] == ["activations: 132.00 MiB", "weights: 1.00 MiB"]
    assert shown["3"][0] == "Net.model.layers: 132.00 MiB", "a part that holds all of its module is one with it"
    assert shown["4"][:2] == ["layers.0–6, 8–31 × 31: 124.00 MiB", "layers.7: 8.00 MiB"]
    assert shown["5"][:2] == ["mlp.up_proj: 93.00 MiB", "self_attn: 31.00 MiB"], "to its full depth"
    assert "62 × 1.50 MiB: 93.00 MiB" in shown["6"]
    page.locator(".icicle .cell", has_text="layers.0–6").first.click()
    page.locator(".icicle .cell", has_text="62 × 1.50 MiB").first.click()
    inside = cells(page)["7"]
    assert len(inside) == 31
    assert inside[:2] == ["layers.0: 3.00 MiB", "layers.1: 3.00 MiB"]
    assert "2 × 1.50 MiB" in page.locator(".icicle .cell").last.get_attribute("title")
    page.locator(".icicle .cell").first.click()
    assert cells(page) == shown, "and closes"
    assert layers.said == []


def test_parts_are_opened_and_reached_by_keyboard(layers: Shown) -> None:
    page = layers.page
    page.locator(".icicle .cell").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent").startswith("layers.7")
    page.keyboard.press("Enter")
    assert cells(page)["4"] == ["layers.7: 8.00 MiB"]
    assert "Net.model.layers › layers.7: 8.00 MiB" in page.locator("#tree .readout").inner_text()
    page.locator(".icicle .cell").first.click()


@pytest.mark.parametrize("kind", ["sunburst", "treemap"])
def test_other_forms_have_the_same_parts(layers: Shown, kind: str) -> None:
    layers.page.get_by_role("button", name=kind, exact=True).click()
    plot = layers.page.query_selector("#tree .js-plotly-plot")
    labels, values = plot.evaluate("(plot) => [plot.data[0].labels, plot.data[0].values]")
    found = dict(zip(labels, values))
    assert found["layers.0–6, 8–31 × 31"] == 124 << 20
    assert found["62 × 1.50 MiB"] == 93 << 20
    told = layers.page.locator("#tree .readout")
    assert told.inner_text() == "live at the peak: 133.00 MiB, 100.00 % of the peak"
    layers.page.locator("#tree .slice", has_text="activations").first.dispatch_event("click")
    layers.page.wait_for_function("document.querySelector('#tree .readout').textContent.includes('activations')")
    assert told.inner_text() == "live at the peak › activations: 132.00 MiB, 99.25 % of the peak"
    layers.page.get_by_role("button", name="icicle", exact=True).click()
    assert layers.said == []


def test_the_peak_by_call_stack(browser: Any, build: Path, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    trace_of_text(build, STACKED.replace("f 1 5000000\n", ""), tmp_path / "trace" / "rank00000.trace")
    opened = Shown(browser, report_of(tmp_path, build))
    opened.page.get_by_role("button", name="by call stack").click()
    shown = cells(opened.page)
    assert shown["1"] == ["live at the peak: 12.50 KiB"]
    assert shown["2"][0] == "a model.py:30 Block.forward ‹ a model.py:7 <module>: 12.00 KiB"
    assert re.fullmatch(r".*, no stack recorded: 512 B", shown["2"][1])
    assert shown["3"][:2] == ["1 × 8.00 KiB: 8.00 KiB", "linear.py:125 Block.forward: 4.00 KiB"]
    assert opened.said == []
