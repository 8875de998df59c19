"""`stalloc.fake_trace`: a trace of fake tensors of a part of a program, which then goes on with real ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Union

from stalloc.core import config
from stalloc.train import install
from stalloc.train import session as _session


@contextlib.contextmanager
def fake_trace(directory: Union[str, os.PathLike[str]], device: str = "cuda", assume: str = "") -> Iterator[Path]:
    """What stalloc.fake_trace says."""
    if _session.current is not None or os.environ.get("STALLOC_MODE"):
        raise RuntimeError("stalloc is active in this process already, and a process writes one trace")
    if device not in ("cuda", "cpu"):
        raise ValueError(f"device must be cuda or cpu: {device!r}")
    variables = {
        "STALLOC_MODE": config.TRACE,
        "STALLOC_TRACE_FAKE": "1",
        "STALLOC_FAKE_ASSUME": assume,
        "STALLOC_MODEL_INFO_PATH": os.fspath(directory),
        "STALLOC_DEVICE": device,
    }
    with _environment(variables):
        install.activate(to_the_end=False)
        session = _session.current
        if session is None or session.fake is None:
            raise RuntimeError(
                "this process is not traced: another one of its rank is, or STALLOC_TRACE_RANKS lacks it"
            )
        try:
            yield Path(directory) / "trace" / f"rank{int(config.rank_text(os.environ) or 0):05d}.trace"
        finally:
            session.marker.finish()
            session.fake.settle()
            session.stop()
            session.fake.end()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
