"""The HTML report: one file that needs no network. Data, script and style are embedded; plotly's script once.

Plotly's script takes a second to be read, so it is kept as text until the page stands (report.js).
"""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from stalloc.core.version import __version__
from stalloc.tools.report.collect import CollectError

# In this order in one function: each may use what stands before it.
_SCRIPTS = ("values", "table", "plots", "icicle", "tree", "first", "report", "difference", "start")

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<div id="report"><noscript>This report draws itself with JavaScript.</noscript></div>
<script type="application/json" id="data">{data}</script>
<script type="text/plain" id="plotly">{plotly}</script>
<script>{script}</script>
</body>
</html>
"""


def render(payload: dict[str, Any], title: str) -> str:
    """The whole page. CollectError where plotly is not installed."""
    return _PAGE.format(
        title=html.escape(title),
        style=_asset("report.css"),
        data=_embedded(payload | {"title": title, "version": __version__}),
        plotly=_plotly(),
        script=_script(),
    )


def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in _SCRIPTS) + "})();\n"


def _asset(name: str) -> str:
    return (resources.files("stalloc.tools.report") / "assets" / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise CollectError(
            "an HTML report needs the package plotly (pip install plotly); --md and --json do not"
        ) from error
    return str(get_plotlyjs())


def _embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
