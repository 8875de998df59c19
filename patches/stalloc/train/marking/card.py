"""Where every byte of a GPU is, in a file next to a trace for `stalloc report`: what torch's allocators do not count,
too.

The file, rank00000.card.json, of each GPU that the process allocated on, at the last look (bytes):

    {"devices": [{"device": 0, "total_bytes": 150110011392, "driver_bytes": 644874240, "free_bytes": 149000000000,
      "held_bytes": 541065216, "context_bytes": 552337408, "communicator_bytes": 585105408, "graph_bytes": 0,
      "library_bytes": 184549376, "others_bytes": 0, "measured_bytes": 1863057408}]}

`held`: by allocators of this process. `context`: what the GPU had less than that when the first block was allocated.
`communicator`, `graph`: what it had less after such calls (allocator/torch/uncounted_bytes.h). `library`: what came
besides, as kernels were loaded. `driver`, `others` and `measured`, the sum by the driver's own count, are null where
NVIDIA's library does not say; then `context` has other processes in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.core import nvml
from stalloc.core.library import Library
from stalloc.train.marking.side_file import SideFile


class CardBytes:
    """The bytes of one rank's GPU. Called on the thread that runs the loop. What cannot be known or written costs a
    warning."""

    def __init__(
        self, path: Path, library: Library, torch: Any, memory: Callable[[str], Optional[nvml.CardMemory]] = nvml.memory
    ) -> None:
        """Removes what an earlier trace has left."""
        self._library, self._torch, self._memory = library, torch, memory
        self._looks = 0
        self._others: dict[int, int] = {}  # by device, at the first look
        self._rows: list[dict[str, Any]] = []
        self._file = SideFile(path, "where the GPU's bytes are could not be noted")

    def iteration_finished(self) -> None:
        """Looks after iterations 1, 2, 4, 8, ...: a look takes the loop about a millisecond."""
        self._looks += 1
        if self._looks & (self._looks - 1) == 0:
            self.look()

    def look(self) -> None:
        self._rows = [self._row(device) for device in self._library.uncounted()] or self._rows

    def write(self) -> None:
        """Nothing where there is no GPU."""
        if self._rows:
            self._file.write(json.dumps({"devices": self._rows}))

    def _row(self, found: dict[str, Any]) -> dict[str, Any]:
        index = found["device"]
        card = self._memory(_pci_bus_id(self._torch, index))
        total = self._torch.cuda.mem_get_info(index)[1]
        others = None if card is None else card.others(os.getpid())
        if others is not None:
            self._others.setdefault(index, others)
        context = max(0, found["taken_at_start_bytes"] - self._others.get(index, 0))
        taken = max(0, found["taken_bytes"] - context - (others or 0))
        communicators = min(found["communicator_bytes"], taken)
        graphs = min(found["graph_bytes"], taken - communicators)
        return {
            "device": index,
            "total_bytes": total,
            "driver_bytes": None if card is None else card.reserved,
            "free_bytes": total - found["taken_bytes"] - found["held_bytes"],
            "held_bytes": found["held_bytes"],
            "context_bytes": context,
            "communicator_bytes": communicators,
            "graph_bytes": graphs,
            "library_bytes": taken - communicators - graphs,
            "others_bytes": others,
            "measured_bytes": None if card is None else card.used,
        }


def _pci_bus_id(torch: Any, index: int) -> str:
    """Indices of NVIDIA's library ignore CUDA_VISIBLE_DEVICES; addresses do not change. Empty: torch does not say."""
    properties = torch.cuda.get_device_properties(index)
    try:
        return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    except AttributeError:
        return ""
