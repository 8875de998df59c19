"""The report as a browser shows it: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exports import trace_of_text
from processes import SCRIPTS, Training
from shown_page import NARROW, WIDE, Shown, report_of
from stalloc import cli
from stalloc.tools.commands.export import dump_lines
from synthetic_runs import planned_pipeline, synthesize

SECTIONS = (
    *("timeline", "advice", "tree", "peak", "layers", "top", "phases", "dynamic"),
    *("allocators", "plan", "estimate", "ranks", "notes"),
)
PLOTS = ("timeline", "allocators", "plan", "ranks")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, build: Path) -> Path:
    return report_of(planned_pipeline(tmp_path_factory.mktemp("run"), build), build)


@pytest.fixture(
    scope="module", params=[("light", WIDE), ("dark", WIDE), ("light", NARROW)], ids=["light", "dark", "narrow"]
)
def shown(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Shown]:
    opened = Shown(browser, report, *request.param)
    yield opened
    opened.page.close()


def test_the_file_needs_nothing_else(report: Path) -> None:
    text = report.read_text()
    assert len(text) < 15 << 20
    without_scripts = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", text, flags=re.S)
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", without_scripts)
    assert sum("<script" in tag for tag in tags) == 3
    assert not [tag for tag in tags if "src=" in tag or ("href=" in tag and "data:," not in tag)]
    assert [entry.name for entry in report.parent.iterdir()] == [report.name], "no temporary file stays"


def test_it_is_drawn_without_errors_or_a_network(shown: Shown, report: Path) -> None:
    assert shown.said == []
    assert shown.requested == [report.as_uri()]
    assert [section.get_attribute("id") for section in shown.page.query_selector_all("section")] == list(SECTIONS)
    for name in PLOTS:
        assert shown.boxes(f"#{name} .main-svg"), f"{name} has no plot"


def test_it_can_be_read_before_it_is_drawn(shown: Shown) -> None:
    """Plotly's script is read behind the first paint of figures and tables."""
    readable, drawn = (
        shown.page.evaluate(f"Number(document.documentElement.dataset.{name})")
        for name in ("readableAfterMs", "drawnAfterMs")
    )
    assert 0 < readable < drawn / 2


def test_a_theme_chosen_before_the_plots_are_there_is_theirs(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": WIDE, "height": 900}, color_scheme="light")
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.add_init_script("""addEventListener("DOMContentLoaded", () => {
        window.early = !window.Plotly;
        [...document.querySelectorAll("button")].find((button) => button.textContent === "dark").click();
    })""")
    page.goto(report.as_uri())
    page.wait_for_selector('html[data-drawn="all"]', timeout=120_000)
    assert page.evaluate("window.early")
    assert page.locator('html[data-theme="dark"]').count() == 1
    assert page.locator("#timeline .main-svg").count() > 0
    assert wrong == []
    page.close()


def test_nothing_is_wider_than_the_page(shown: Shown) -> None:
    assert shown.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def _meet(one: dict[str, float], other: dict[str, float]) -> bool:
    """By more than the padding of a legend."""
    across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
    down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
    return across > 4 and down > 4


def test_legends_stand_clear_of_their_plots(shown: Shown) -> None:
    for name in PLOTS:
        areas = shown.boxes(f"#{name} .cartesianlayer .gridlayer, #{name} .heatmaplayer image, #{name} .scatterlayer")
        areas += shown.boxes(f"#{name} .xtitle")
        for legend in shown.boxes(f"#{name} .legend"):
            for area in areas:
                assert not _meet(legend, area), f"{name}: {legend} {area}"


def test_plots_have_room(shown: Shown) -> None:
    least = 0.5 * shown.page.evaluate("document.getElementById('report').clientWidth")
    for name in ("timeline", "plan"):
        assert min(area["width"] for area in shown.boxes(f"#{name} .nsewdrag")) >= least, name
    assert max(bar["width"] for bar in shown.boxes("#allocators .barlayer .bars .point")) >= 80


def test_around_the_peak_every_change_is_drawn(browser: Any, report: Path) -> None:
    opened = Shown(browser, report)
    opened.page.get_by_role("button", name="around the peak", exact=True).click()
    plot = opened.page.query_selector("#timeline .js-plotly-plot")
    drawn = plot.evaluate("(plot) => plot.data.filter((line) => line.stackgroup).map((line) => [...line.x])[0]")
    trace = report.parents[2] / "trace" / f"rank{int(opened.page.get_by_label('rank').input_value()):05d}.trace"
    lines = [line for line in dump_lines(trace) if line["event"] != "call"]
    changes = [at for at, line in enumerate(lines) if line["event"] in ("alloc", "free")]
    assert len(drawn) > 300
    assert drawn[-1] - drawn[0] <= 1500
    assert set(drawn) >= {at for at in changes if drawn[0] <= at <= drawn[-1]}
    assert opened.page.locator("#timeline .annotation-text", has_text=re.compile("^[FB] ")).count() > 1, "phases"
    assert opened.said == []
    opened.page.close()


def test_labels_of_iterations_stand_clear_of_each_other(browser: Any, build: Path, tmp_path: Path) -> None:
    """Where the set-up is a thirtieth of what is drawn."""
    lines = ["stalloc-events 1", *(f"a {block} 1024 0 0 {block}" for block in range(70))]
    for block in range(70, 1270):
        if block % 300 == 70:
            lines.append(f"m iteration begin - 0 {block // 300} {block}")
        lines += [f"a {block} 4096 0 0 {block}", f"f {block} {block}"]
    (tmp_path / "trace").mkdir()
    trace_of_text(build, "\n".join(lines) + "\n", tmp_path / "trace" / "rank00000.trace")
    opened = Shown(browser, report_of(tmp_path, build))
    labels = opened.page.locator("#timeline .annotation-text")
    told = [text for text in labels.all_text_contents() if not text.startswith("peak")]
    boxes = [labels.nth(at).bounding_box() for at in range(len(told))]
    assert told == ["iter 0", "iter 1", "iter 2", "iter 3"]
    for at, box in enumerate(boxes):
        assert not any(_meet(box, other) for other in boxes[at + 1 :])
    opened.page.close()


def test_every_class_of_the_tree_has_its_name_and_bytes(shown: Shown) -> None:
    told = shown.page.locator("#tree .legend").inner_text()
    classes = set(texts_of(shown.page, "peak", "class"))
    assert classes
    assert all(re.search(rf"{name} [\d.]+ [KMG]iB, [\d.]+ %", told) for name in classes), told


def test_layers_have_their_classes(browser: Any, named: Path) -> None:
    opened = Shown(browser, named)
    row = opened.page.locator("#layers tbody tr").first
    assert row.locator(".bar span").count() > 2
    assert "weights: " in (row.locator("td[title*='weights']").get_attribute("title") or "")
    opened.page.close()


def test_its_controls_work(shown: Shown) -> None:
    page = shown.page
    for label in ("iteration of the peak", "around the peak", "by time", "treemap"):
        page.get_by_role("button", name=label, exact=True).click()
        assert page.get_by_role("button", name=label, exact=True).get_attribute("aria-pressed") == "true"
    assert page.locator("#tree .treemaplayer .slice").count() > 1
    rows = page.locator("#peak tbody tr")
    before = rows.count()
    page.get_by_label("search the peak").fill("weights")
    assert 0 < rows.count() < before
    assert all("weights" in text for text in rows.all_inner_texts())
    page.locator("#top th").nth(2).click()
    assert page.locator("#top th").nth(2).get_attribute("aria-sort") == "descending"
    page.locator("#top th button").nth(2).press("Enter")
    assert page.locator("#top th").nth(2).get_attribute("aria-sort") == "ascending"
    assert page.locator("#top th[aria-sort='none']").count() == page.locator("#top th").count() - 1
    first = page.locator("h2").first.inner_text()
    page.get_by_label("rank").select_option("0")
    shown.settle()
    assert "rank 0 of" in page.locator(".facts").inner_text()
    page.get_by_role("button", name=re.compile("^(dark|light)$")).click()
    shown.settle()
    assert page.locator("h2").first.inner_text() == first
    assert shown.said == []


@pytest.fixture(scope="module")
def named(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a traced training whose script, tensors and modules it knows."""
    training = Training(build, tmp_path_factory.mktemp("named"))
    script = [str(SCRIPTS / "named_training.py"), "flat", str(training.directory / "expected.json"), "3"]
    training.start_plain("Trace", "-m", "stalloc", "run", *script, STALLOC_TRACE_DETAIL="1").good()
    return report_of(training.info, build)


def texts_of(page: Any, section: str, column: str) -> list[str]:
    heads = page.locator(f"#{section} th").all_inner_texts()
    place = heads.index(column) + 1
    return list(page.locator(f"#{section} tbody td:nth-child({place})").all_inner_texts())


def test_what_is_held_without_use_is_shown(browser: Any, named: Path) -> None:
    opened = Shown(browser, named)
    opened.page.get_by_label("search what is held without use").fill("exp_avg_sq")
    assert set(texts_of(opened.page, "unused", "how")) == {"idle"}
    assert all(text.startswith("aten::") for text in texts_of(opened.page, "unused", "used next by"))
    assert opened.said == []


def test_tensors_layers_and_call_sites_are_shown_and_searched(browser: Any, named: Path) -> None:
    opened = Shown(browser, named)
    page = opened.page
    for section, label in (("peak", "search the peak"), ("top", "search what costs most")):
        field = page.get_by_label(label)
        field.fill("exp_avg_sq")
        found = texts_of(page, section, "tensor")
        assert found
        assert all("exp_avg" in text for text in found)
        assert set(texts_of(page, section, "class")) == {"optimizer state"}
        field.fill("named_training.py")
        sites = texts_of(page, section, "call site")
        assert sites
        assert all(text.startswith("named_training.py:") for text in sites)
        field.fill("no such tensor")
        assert page.locator(f"#{section} tbody tr").count() == 0
    # All tensors of a block and the whole stack are in tips, and are searched.
    page.get_by_label("search the peak").fill("blocks.1.down.bias gradient")
    assert "Net.blocks.0.up.weight and 11 more" in texts_of(page, "peak", "tensor")
    assert "Net.blocks.1.down.bias" in page.locator("#peak tbody td[title*='up.weight']").get_attribute("title")
    page.get_by_label("search the peak").fill("named_training.py")
    stack = page.locator("#peak tbody td[title*='named_training']").first.get_attribute("title").splitlines()
    assert any(line.startswith(f"{SCRIPTS}/named_training.py") for line in stack[:3])
    assert re.fullmatch(r".*/named_training\.py:\d+ <module>", stack[-1]), "not what ran it"
    page.get_by_role("button", name="treemap", exact=True).click()
    assert page.locator("#tree .treemaplayer").get_by_text("optimizer state").count() > 0
    assert opened.said == []


def test_two_runs_lie_over_each_other(browser: Any, report: Path, tmp_path: Path, capsys: Any) -> None:
    traces = [str(report.parents[2] / "trace" / f"rank0000{rank}.trace") for rank in range(2)]
    file = tmp_path / "diff.html"
    assert cli.main(["diff", *traces, "--html", str(file)]) == 0
    assert cli.main(["diff", *traces, "--json"]) == 0
    peak = json.loads(capsys.readouterr().out.splitlines()[-1])["peak_live_bytes"]
    opened = Shown(browser, file)
    assert opened.said == []
    assert opened.requested == [file.as_uri()]
    plot = opened.page.query_selector("#curves .js-plotly-plot")
    curves = plot.evaluate("(plot) => plot.data.map((line) => [line.x, line.y])")
    assert [max(live) * 2**30 for _, live in curves] == pytest.approx([peak["before"], peak["after"]])
    for place, _ in curves:
        assert place == sorted(place)
        assert -1 <= place[0] < 0, "the set-up"
        assert 3 < place[-1] <= 4, "four iterations"
    assert opened.page.locator("h1").inner_text() == "rank00000 and rank00001"
    assert opened.page.locator("#blocks tbody tr").count() > 0
    opened.page.get_by_role("button", name="dark").click()
    opened.settle()
    assert opened.said == []


def test_runs_that_do_not_differ_say_so(browser: Any, report: Path, tmp_path: Path) -> None:
    trace = str(report.parents[2] / "trace" / "rank00000.trace")
    assert cli.main(["diff", trace, trace, "--html", str(tmp_path / "diff.html")]) == 0
    opened = Shown(browser, tmp_path / "diff.html")
    for section in ("classes", "layers", "phases", "allocators"):
        assert opened.page.locator(f"#{section}").inner_text().endswith("Nothing differs.")
        assert opened.page.locator(f"#{section} table").count() == 0
    assert opened.said == []


# A million events and more: the page has aggregates, so it opens as a small one does.
@pytest.mark.slow
def test_a_long_run_opens_as_fast_as_a_short_one(
    browser: Any, report: Path, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthesize(tmp_path, build, "--iterations=3", "--blocks=500000")
    long_report = report_of(tmp_path, build)
    assert long_report.stat().st_size < 15 << 20

    def open_ms(file: Path) -> float:
        fresh = Shown(browser, file)
        told: float = fresh.page.evaluate("Number(document.documentElement.dataset.drawnAfterMs)")
        assert fresh.said == []
        events = fresh.page.locator(".facts").inner_text()
        fresh.page.close()
        if file is long_report:
            assert int(re.search(r"([\d,]+) events", events)[1].replace(",", "")) > 1_000_000  # type: ignore[index]
        return told

    times = [(open_ms(long_report), open_ms(report)) for _ in range(3)]
    long, short = min(long for long, _ in times), min(short for _, short in times)
    assert long < max(3000, 2 * short), f"{long:.0f} ms; a small report on this machine: {short:.0f} ms"


def test_every_byte_of_the_gpu_is_a_section_where_it_was_measured(browser: Any, tmp_path: Path, build: Path) -> None:
    run = planned_pipeline(tmp_path, build)
    gib = 1 << 30
    measured = dict.fromkeys(("driver_bytes", "context_bytes", "communicator_bytes", "graph_bytes"), gib)
    measured |= {"device": 0, "total_bytes": 80 * gib, "held_bytes": 40 * gib, "free_bytes": 36 * gib}
    measured |= {"library_bytes": gib, "others_bytes": 0, "measured_bytes": 44 * gib}
    for rank in range(2):
        (run / "trace" / f"rank{rank:05d}.card.json").write_text(json.dumps({"devices": [measured]}))
    opened = Shown(browser, report_of(run, build))
    assert opened.said == []
    text = opened.page.locator("#card").inner_text()
    assert "The driver counts 44.00 GiB as taken, as much as the sum." in text
    rows = opened.page.locator("#card tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows][:2] == ["PyTorch's allocators and the arena", "CUDA context"]
    assert rows[-1].split("\t") == ["free", "36.00 GiB"]
    opened.page.close()
