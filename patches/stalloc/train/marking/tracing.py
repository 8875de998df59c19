"""Mode Trace apart from the allocator: the window of iterations, names of blocks, marks of modules, tokens."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Callable, Optional, SupportsIndex

from stalloc.core import log, trace_files
from stalloc.core.config import Config
from stalloc.core.library import Library
from stalloc.train.marking import bus, steps
from stalloc.train.marking.card import CardBytes
from stalloc.train.marking.device_work import DeviceWork
from stalloc.train.marking.experts import ExpertTokens
from stalloc.train.marking.names import TensorNames
from stalloc.train.marking.paths import ModulePaths
from stalloc.train.marking.tokens import TokenCounts

WAITS, RUNS, ENDED = "waits", "runs", "ended"


class Tracing:
    """One process's trace. Called on the thread that runs the loop."""

    def __init__(
        self,
        config: Config,
        library: Library,
        torch: Any,
        block_of: Optional[Callable[[Any], int]] = None,
    ) -> None:
        self._steps = config.trace_steps
        self._library = library
        self._finished = 0  # iterations so far
        self.state = WAITS if self._steps.waits else RUNS
        directory = Path(os.environ.get("STALLOC_MODEL_INFO_PATH", ""))
        rank = int(config.rank or 0)
        self._tokens = TokenCounts(trace_files.path_of(directory, rank, "tokens.json"))
        self._experts = ExpertTokens(trace_files.path_of(directory, rank, "experts.jsonl"))
        timed = config.trace_times and not config.trace_fake
        wait = steps.waiting_for(torch) if timed else _nothing
        self._free_steps = steps.FreeSteps(
            trace_files.path_of(directory, rank, "steps.json"), wait, DeviceWork(torch if timed else None)
        )
        self._card = CardBytes(trace_files.path_of(directory, rank, "card.json"), library, torch)
        at_bus = trace_files.path_of(directory, rank, "bus.json")
        self._measure_bus = functools.partial(bus.measure, at_bus, torch if timed else None)
        self._when_ended: list[Callable[[], object]] = []
        self.paths = ModulePaths()
        self._afterwards = "the program ends" if config.trace_fake else "the run goes on"
        where = () if block_of is None else (block_of,)
        self.names = TensorNames(library, torch, self.paths, self._wants_names, *where) if config.trace_names else None
        if self.names is not None:
            self.names.inputs.install()

    def _wants_names(self) -> bool:
        return self.state == RUNS

    def iteration_finished(self, iteration: int) -> None:
        """Begins or ends the trace where the window does; `iteration` is the loop's own number."""
        self._finished += 1
        self._tokens.iteration_finished()
        self._experts.iteration_finished(iteration)
        if self.names is not None:
            self.names.next_iteration()
        if self.state == WAITS and not self._steps.manual and self._finished == self._steps.first:
            self.begin()
            log.debug(f"iteration {iteration}: the trace begins after it, with what is live")
        if self.state == RUNS:
            self._card.iteration_finished()
        if self.state == RUNS and self._finished == self._steps.end:
            self.end()
            traced = self._finished - self._steps.first
            log.info(f"iteration {iteration}: the trace is complete after {traced} iterations; {self._afterwards}")
        if self.state == ENDED:
            self._free_steps.iteration_finished()

    @property
    def running(self) -> bool:
        return self.state == RUNS

    def when_ended(self, done: Callable[[], object]) -> None:
        """Once the trace has its end: what only it needed can go."""
        self._when_ended.append(done)

    def begin(self) -> None:
        """REQUIRES: it waits."""
        self._library.start_trace()
        self.state = RUNS
        if self.names is not None:
            self.names.resolve()

    def end(self) -> None:
        """The trace gets its orderly end; a later call does nothing."""
        self._card.look()
        self._library.stop_trace()
        self.state = ENDED
        for done in self._when_ended:
            done()
        self._when_ended.clear()
        self._measure_bus()
        if self.names is not None:
            self.names.inputs.remove()
        self._tokens.iteration_finished()  # the loop's last, where stop() is called after it
        self.flush()

    def program_ends(self) -> None:
        """What comes now is no part of an iteration."""
        self._free_steps.close()

    def tokens(self, count: SupportsIndex) -> None:
        """Adds the present micro-batch, if it is traced."""
        if self.state == RUNS:
            self._tokens.add(count)
        elif self.state == ENDED:
            self._free_steps.add(int(count))

    def experts(self, layer: int, counts: list[int]) -> None:
        """Tokens of a layer's experts in the present micro-batch, where it is traced."""
        if self.state == RUNS:
            self._experts.add(layer, counts)

    def flush(self) -> None:
        """What is not the library's to write."""
        self._tokens.write()
        self._experts.write()
        self._free_steps.write()
        self._card.write()


def _nothing() -> None:
    """There is nothing to wait for."""
