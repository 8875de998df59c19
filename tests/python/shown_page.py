"""A report as a browser shows it: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WIDE, NARROW = 1320, 390


def chromium() -> Iterator[Any]:
    """A browser for as long as a fixture lasts; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()


def report_of(directory: Path, build: Path) -> Path:
    from stalloc import cli

    pytest.importorskip("plotly")
    os.environ["STALLOC_LIB_PATH"] = str(build)
    assert cli.main(["report", str(directory), "--all"]) == 0
    return directory / "output" / "report" / "report.html"


class Shown:
    """The page, drawn; what the console said and what was asked of a network."""

    def __init__(self, browser: Any, file: Path, theme: str = "light", width: int = WIDE, **more: Any) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme, **more)
        self.said: list[str] = []
        self.requested: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.goto(file.as_uri())
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_selector('html[data-drawn="all"]', timeout=120_000)

    def boxes(self, selector: str) -> list[dict[str, float]]:
        found = (element.bounding_box() for element in self.page.query_selector_all(selector))
        return [box for box in found if box is not None]
