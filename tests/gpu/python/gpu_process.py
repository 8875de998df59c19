"""The modes in which the adapter's GPU tests run, a process in one of them, and the ranks and the port of several."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from adapter_process import Adapter
from gpu_devices import visible_devices

PROGRAMS = Path(__file__).resolve().parent / "programs"
RANKS = max(2, len(visible_devices()))  # of a distributed program: a rank a GPU
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

    def case(self, case: str, program: str = "cuda_cases.py", **variables: str) -> dict[str, Any]:
        """The result of one case of the program; its failed assertions fail the test."""
        result: dict[str, Any] = self.run(program, case, **MODES[self.name], **variables).result
        return result


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
