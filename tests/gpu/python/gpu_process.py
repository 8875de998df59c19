"""The modes in which the adapter's GPU tests run, a process in one of them, and a port for several."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from adapter_process import Adapter

PROGRAMS = Path(__file__).resolve().parent / "programs"
MODES = {
    "fast": {"mode": "Trace", "STALLOC_TRACE_FAST_MODE": "1"},
    "exact": {"mode": "Trace", "STALLOC_TRACE_FAST_MODE": "0"},
    "alloc": {"mode": "Alloc"},
}


class ModedAdapter(Adapter):
    """An adapter whose programs run in one of MODES."""

    def __init__(self, library: Path, directory: Path, name: str) -> None:
        super().__init__(library, PROGRAMS, directory)
        self.name = name

    def case(self, case: str, **variables: str) -> dict[str, Any]:
        """The result of one case of cuda_cases.py; its failed assertions fail the test."""
        result: dict[str, Any] = self.run("cuda_cases.py", case, **MODES[self.name], **variables).result
        return result


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
