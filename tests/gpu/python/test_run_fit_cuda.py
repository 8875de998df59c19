"""`stalloc run --fit` on a GPU: a loop trains in less memory than it takes by itself, with the losses that it has
there, and with the peak that was predicted. The program is that of tests/python/test_run_fit.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from processes import Finished, Training, run_python
from test_run_fit import TAKES, Program, losses

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(280)]

ROWS = ("65536", "12")  # 7 GiB of activations
VARIABLES = {"DEVICE": "cuda", "STALLOC_DEVICE": "cuda", "WIDTH": "512", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def peak(done: Finished) -> int:
    return int(done.good().out.splitlines()[-2])


def test_a_loop_trains_in_less_memory(
    library: Path, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    program = Program(Training(library.parent, tmp_path), run_python)
    plain = program.start(words=ROWS, **VARIABLES)
    wanted = int(0.75 * peak(plain))
    done = program.fit(f"{wanted}B", words=ROWS, **VARIABLES)
    assert losses(done) == losses(plain)
    document = program.choice()
    record_property("run_fit_peak", f"{peak(done)} of {document['predicted']['peak_live_bytes']} predicted")
    record_property("run_fit_changes", f"{document['chosen']['recompute']} {document['chosen']['offload']}")
    assert document["chosen"]["recompute"] or document["chosen"]["offload"]
    assert peak(done) <= wanted
    assert peak(done) == pytest.approx(document["predicted"]["peak_live_bytes"], rel=0.02)
    assert TAKES in program.fit(f"{wanted}B", words=ROWS, **VARIABLES).good().err


def test_without_a_size_the_card_s_memory_is_taken(library: Path, tmp_path: Path) -> None:
    program = Program(Training(library.parent, tmp_path), run_python)
    done = program.start("--fit", words=("4096", "12"), **VARIABLES)
    assert losses(done)
    document = program.choice()
    assert document["memory_bytes"] > 1 << 30
    assert document["automatic"]["made_for"]["GPUs"] >= 1
    assert "nothing has to be changed" in done.err
