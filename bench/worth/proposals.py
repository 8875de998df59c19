"""What `stalloc fit` would choose for a program of bench/worth under an allocator, from one pair of traces for all."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Optional

from documents import GIB
from kinds import KINDS, rows_of
from known import Configuration
from launch import warm_up

from stalloc.tools.fitting import choose, document
from stalloc.tools.fitting.replayed import Bus, TracedRun
from stalloc.tools.fitting.ways import Way
from stalloc.tools.fitting.work import Lengths, Work

UNIT = 256  # tokens of a unit of a sequence's length


@dataclasses.dataclass
class Proposals:
    chosen: argparse.Namespace
    program: str
    run: TracedRun
    bus: Optional[Bus] = None  # to the host; None: nothing is offloaded
    way: Optional[Way] = None  # with graphs, where the program can
    _known: dict[tuple[str, int], Optional[Configuration]] = dataclasses.field(default_factory=dict)

    def __call__(self, allocator: str, memory: int) -> Optional[Configuration]:
        """For so many bytes; None: nothing would fit."""
        if (allocator, memory) not in self._known:
            self._known[allocator, memory] = self._proposed(allocator, memory)
        return self._known[allocator, memory]

    def _proposed(self, allocator: str, memory: int) -> Optional[Configuration]:
        wish, begin = self._wish(allocator, memory), time.monotonic()
        choice = choose.choose(self.run, wish)
        seconds = time.monotonic() - begin
        print(f"{self.program}, {allocator}: a proposal for {memory / GIB:.2f} GiB in {seconds:.0f} s", flush=True)
        if not choice.fits:
            return None
        proposal = document.document_of(choice, wish, "torch", 0, self.program)
        chosen = proposal["chosen"]
        away = [*chosen["offload"], *(["the optimizer's state"] if chosen["offload_state"] else [])]
        changes = tuple(chosen["recompute"]), tuple(away)
        return Configuration(chosen["micro_batch"], *changes, json.dumps(proposal), graphs=bool(chosen.get("graphs")))

    def _wish(self, allocator: str, memory: int) -> choose.Wish:
        kind, rows = KINDS[self.program], rows_of(self.program, self.chosen.size)
        counted = rows is not None and rows.count > 0  # else rows are as many as micro-batches make, all alike
        steps = [rows.step(number) for number in range(self.chosen.steps)] if rows is not None and counted else []
        lengths = Lengths(
            tuple(length for step in steps for length in step),
            packed=rows is not None and rows.packed,
            in_order=True,
            timed=tuple(length for step in steps[warm_up(self.chosen.steps) :] for length in step),
        )
        work = Work(
            kind.traced.micro_batch,
            1 if rows is None else rows.traced,
            rows.count if rows is not None and counted else None,
            divides=kind.divides,
            keeps_accumulation=not counted,
            lengths=lengths,
            longer=kind.longest,
        )
        return choose.Wish(
            memory=memory,
            work=work,
            goal=choose.Goal.LONGEST if kind.longest else choose.Goal.FASTEST,
            bus=0.0 if self.bus is None else self.bus.bytes_per_second,
            way=self.way,
            host=None if self.bus is None else self.bus.host_bytes,
            allocator=allocator,
            sequence_unit=UNIT if kind.longest else 0,
        )
