"""Traces made from text, and what `stalloc export` makes of a trace."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stalloc import cli

STACKED = """stalloc-events 1
t /home/me/a model.py
t Block.forward
t <module>
t /site/torch/nn/modules/linear.py
c 0 7 0 2
c 1 30 0 1
c 2 125 3 1
m iteration begin - 0 0 1000000
a 0 4096 0 0 2000000 3
a 1 8192 0 0 3000000 2
a 2 512 0 0 4000000
f 1 5000000
"""


def trace_of_text(build: Path, text: str, file: Path) -> Path:
    command = [str(build / "stalloc-planner"), "import", "-", f"--output={file}"]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    return file


def exported(trace: Path, form: str, directory: Path) -> Path:
    file = directory / f"out.{form}"
    assert cli.main(["export", str(trace), "--format", form, "--output", str(file)]) == 0
    return file
