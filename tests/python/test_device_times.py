"""STALLOC_TRACE_TIMES: the host waits for the device where passes and coarse layers are marked, and nowhere else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stalloc.train.marking import device_times
from stalloc.train.marking.marks import BEGIN, LAYER, OPTIMIZER


@pytest.mark.parametrize("captures", [False, True])
def test_coarse_marks_wait_and_none_in_a_capture(captures: bool) -> None:
    seen: list[str] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: captures,
        synchronize=lambda: seen.append("wait"),
    )

    mark = device_times.after_the_device(lambda *_: seen.append("mark"), SimpleNamespace(cuda=cuda))
    for name in (b"GPT", b"GPT.blocks.3", b"GPT.blocks.3.mlp.up"):
        mark(LAYER, BEGIN, 1, 0, 0, name, 0)
    mark(LAYER, BEGIN, 1, 0, 0, b"GPT.blocks.3.mlp.up.base", 0)
    mark(OPTIMIZER, BEGIN, 0, 0, 0, None, 0)
    if captures:
        assert seen == ["mark"] * 5
    else:
        assert seen == ["wait", "mark"] * 3 + ["mark"] + ["wait", "mark"]


def test_nothing_waits_before_there_is_a_device() -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    seen: list[int] = []
    mark = device_times.after_the_device(lambda *words: seen.append(1), SimpleNamespace(cuda=cuda))
    mark(OPTIMIZER, BEGIN, 0, 0, 0, None, 0)
    assert seen == [1]


def test_nothing_waits_behind_the_trace() -> None:
    waited: list[int] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, synchronize=lambda: waited.append(1)
    )
    runs = [True]
    mark = device_times.after_the_device(lambda *_: None, SimpleNamespace(cuda=cuda), lambda: runs[0])
    mark(OPTIMIZER, BEGIN, 0, 0, 0, None, 0)
    runs[0] = False
    mark(OPTIMIZER, BEGIN, 0, 0, 0, None, 0)
    assert waited == [1]
