"""What a reader of a report sees first and works with: the first screen, tables, and the page on a phone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from event_runs import MIB, answer
from exports import trace_of_text
from layered_runs import layered
from shown_page import Shown, report_of
from stalloc.core import sizes
from stalloc.tools.report import first_look

pytestmark = pytest.mark.usefixtures("real_libraries")

PHONE = {"has_touch": True, "is_mobile": True}
NEITHER = "100 % of the peak has no module and no tensor's name."


@pytest.fixture(scope="module")
def bare(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layered(build, tmp_path_factory.mktemp("bare") / "run", modules=False)


@pytest.fixture(scope="module")
def directory(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layered(build, tmp_path_factory.mktemp("layered") / "run")


@pytest.fixture(scope="module")
def shown(browser: Any, build: Path, directory: Path) -> Shown:
    return Shown(browser, report_of(directory, build))


def row(what: str, saves: int, of_live: bool = True) -> dict[str, Any]:
    return {"what": what, "saves_bytes": saves, "of_live": of_live, "grows": 0}


def test_the_best_changes_are_two_ideas() -> None:
    rows = [
        row("recompute all layers", 9),
        row("recompute layers.*.mlp", 8),
        row("run with the plan", 7, of_live=False),
        row("offload optimizer state", 6),
        row("share gradients", 5),
    ]
    assert [found["saves_bytes"] for found in first_look.best_changes(rows)] == [9, 6]
    assert [found["saves_bytes"] for found in first_look.best_changes(rows[:3])] == [9, 7]
    assert first_look.best_changes([]) == []
    leak = row("stop leaving", 1) | {"grows": 5}
    assert [found["saves_bytes"] for found in first_look.best_changes([*rows, leak])] == [1, 9]


def test_hints_tell_what_another_trace_would_show(bare: Path, directory: Path, capsys: Any) -> None:
    told = answer(capsys, "report", str(bare))["views"][0]
    assert told["hints"][0][0] == NEITHER
    assert "STALLOC_TRACE_MODULES=1" in told["hints"][0][1]
    assert "STALLOC_TRACE_STACKS=1" in told["hints"][0][1]
    assert told["hints"][0][2].startswith("STALLOC_TRACE_DETAIL=1 does both")
    known = answer(capsys, "report", str(directory))["views"][0]
    assert known["hints"] == [["When tracing, STALLOC_TRACE_STACKS=1 shows the line of Python that requests it."]]
    known["rank"]["fingerprint"]["trace_mode"] = ""  # a snapshot that was imported
    assert first_look.hints(known, 0) == []


def test_the_first_screen_says_where_when_and_what_to_do(shown: Shown, directory: Path, capsys: Any) -> None:
    best = answer(capsys, "report", str(directory))["views"][0]["best_changes"][0]
    assert [change["what"] for change in best] == ["let PyTorch's segments grow"], "nothing else saves 1 % of the peak"
    cards = shown.page.locator("#first .card").all_inner_texts()
    assert cards[0].startswith("peak of live bytes\n133.00 MiB\nforward pass, iteration 0, micro-batch 0\nevent ")
    assert cards[1].startswith("where: activations\n132.00 MiB\n99.25 % of the peak\n")
    assert "Net.model.layers.layers.0–6, 8–31 × 31" in cards[1]
    for card, change in zip(cards[2:3], best):
        assert change["what"] in card
        assert f"\n−{sizes.size(change['saves_bytes'])}\n" in card
        assert change["how_to"] in card
    first, timeline = (shown.page.locator(name).bounding_box() for name in ("#first", "#timeline"))
    assert first["y"] + first["height"] < timeline["y"] < 500, "all of it, and the curve, are in the first 900 pixels"
    assert [name.get_attribute("id") for name in shown.page.query_selector_all("section")][1] == "advice"


def test_what_is_held_lies_above_what_lives(browser: Any, build: Path, tmp_path: Path) -> None:
    """Also in a window that begins and ends between two records of it."""
    (tmp_path / "trace").mkdir()
    lines = ["stalloc-events 1", f"h 0 {8 * MIB} 0", f"a 0 {4 * MIB} 0 0 1", "m iteration begin - 0 0 2"]
    for step in range(40):
        lines += [f"a {step + 1} {3 * MIB} 0 0 {10 * step + 3}", f"f {step + 1} {10 * step + 4}"]
        lines += [f"m iteration begin - 0 {step + 1} {10 * step + 5}"]
    trace_of_text(build, "\n".join(lines) + "\n", tmp_path / "trace" / "rank00000.trace")
    opened = Shown(browser, report_of(tmp_path, build))
    for span in ("whole run", "iteration of the peak"):
        opened.page.get_by_role("button", name=span, exact=True).click()
        plot = opened.page.query_selector("#timeline .js-plotly-plot")
        held, live = plot.evaluate(
            "(plot) => [(line) => !line.stackgroup, (line) => line.stackgroup].map((of) => "
            "plot.data.filter(of).map((line) => [[...line.x], [...line.y]]))"
        )
        assert held[0][1] == [8] * len(held[0][1])
        assert held[0][0][-1] == max(live[0][0]), "to the end of the curve"
        assert min(held[0][0]) <= min(live[0][0]) + 1
    opened.page.close()


def test_names_are_elided_in_front_and_columns_stay_in_the_page(shown: Shown) -> None:
    page = shown.page
    wide = "(box) => box.scrollWidth > box.clientWidth"
    assert not any(page.locator(f"#{name} .scroll").first.evaluate(wide) for name in ("peak", "top", "layers"))
    # Where the last character stands, and the cell ends.
    ends = page.locator("#peak td.name").first.evaluate("""(cell) => {
        cell.firstChild.textContent = "a.very.long.path.".repeat(20) + "its_end";
        const text = cell.firstChild.firstChild, range = document.createRange();
        range.setStart(text, text.length - 1); range.setEnd(text, text.length);
        const [last, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
        return [cell.scrollWidth > cell.clientWidth, last.right <= box.right && last.left >= box.left];
    }""")
    assert ends == [True, True]


def test_a_table_is_saved_as_csv(shown: Shown, tmp_path: Path) -> None:
    page = shown.page
    page.get_by_label("search the peak").fill("up_proj")
    with page.expect_download() as saved:
        page.locator("#peak").get_by_role("button", name="CSV").click()
    saved.value.save_as(tmp_path / "peak.csv")
    rows = list(csv.DictReader((tmp_path / "peak.csv").read_text().splitlines()))
    assert sum(int(found["together"]) for found in rows) == 96 * MIB
    assert {found["layer"] for found in rows} == {f"Net.model.layers.{at}.mlp.up_proj" for at in range(32)}
    assert saved.value.suggested_filename == "Memory_of_run-peak.csv"
    page.get_by_label("search the peak").fill("")


def test_a_swipe_over_a_plot_scrolls_a_phone(browser: Any, build: Path, directory: Path) -> None:
    opened = Shown(browser, report_of(directory, build), width=390, **PHONE)
    page = opened.page
    for plot in ("#timeline .nsewdrag", "#allocators .nsewdrag", "#tree .icicle"):
        place = page.locator(plot).first
        place.scroll_into_view_if_needed()
        box, before = place.bounding_box(), page.evaluate("scrollY")
        x, y = box["x"] + box["width"] / 2, min(700, box["y"] + box["height"] / 2)
        touch = page.context.new_cdp_session(page)
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            *(("touchMove", [{"x": x, "y": y - 20 * step}]) for step in range(1, 11)),
            ("touchEnd", []),
        ):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            page.wait_for_timeout(16)
        page.wait_for_function(f"scrollY > {before} + 50", timeout=5000)
    assert page.locator(".modebar-btn").count() == 0, "no tool bar over labels"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert opened.said == []
    page.close()
