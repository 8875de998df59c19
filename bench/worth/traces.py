"""The two traces of a program from which `stalloc fit` proposes: made at the device's times, the second with half the
tokens. What is in the directory already is not traced again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from documents import write_json
from kinds import KINDS, Traced
from modes import Modes

from stalloc.tools.fitting.replayed import Bus, TracedRun
from stalloc.tools.fitting.ways import Way, other_way
from stalloc.tools.report import collect, graph_choice, select

TRACED_STEPS, FREE_STEPS = 3, 8  # the free ones show how long steps take untraced
_SETTINGS = ["STALLOC_TRACE_MODULES=1", "STALLOC_TRACE_TIMES=1", f"STALLOC_TRACE_STEPS={TRACED_STEPS}"]
Run = Callable[[list[str], dict[str, str]], tuple[int, list[dict[str, Any]], str]]


class Traces:
    """The traces of one program. `measured`: figures of their making, for the JSON."""

    def __init__(self, program: str, directory: Path, run: Run) -> None:
        self._program, self._directory = program, directory
        kind = KINDS[program]
        self.measured = [self._made("traced", kind.traced, run), self._made("beside", kind.beside, run)]
        if kind.graphs:
            self.measured.append(self._made("graphs", kind.traced, run, "--graphs"))

    @property
    def outside(self) -> int:
        """Bytes of the card that are no allocator's."""
        return max(rank for each in self.measured for rank in each["outside_bytes"])

    @property
    def bus(self) -> Bus:
        """To the host, as measured after the trace."""
        return Bus.measured_with(self._trace("traced"))

    def traced_run(self) -> TracedRun:
        first, second = (self._trace(name) for name in ("traced", "beside"))
        tokens = [TracedRun(trace).most_tokens() for trace in (first, second)]
        assert tokens[0] is not None, "programs report their tokens"
        assert tokens[1] is not None
        kind = KINDS[self._program]
        rows = 1.0 if kind.longest else kind.beside.micro_batch / kind.traced.micro_batch
        return TracedRun(first, second, tokens[1] / tokens[0], rows)

    def _trace(self, name: str) -> Path:
        return self._directory / name / "trace" / "rank00000.trace"

    def way(self, memory: int) -> Optional[Way]:
        """With graphs; None: the program has none, as on a CPU."""
        if not KINDS[self._program].graphs:
            return None
        trace = self._trace("traced")
        view = select.view_of(trace, None)
        peaks = [drawn["peak"]["live_bytes"] for drawn in view["devices"]]
        try:
            found = graph_choice.choice(view, trace, self._trace("graphs"), peaks.index(max(peaks)), memory)
        except collect.CollectError as error:
            print(f"{self._program}: {error}", flush=True)
            return None
        return other_way(found, trace)

    def _made(self, name: str, traced: Traced, run: Run, *more: str) -> dict[str, Any]:
        words = [*traced.words(), *more, "--steps", str(TRACED_STEPS + FREE_STEPS)]
        path = self._directory / f"{name}.json"
        if path.is_file() and self._trace(name).is_file():
            known: dict[str, Any] = json.loads(path.read_text())
            if known["words"] == words:
                return known
        begin = time.monotonic()
        environment = Modes(self._directory, settings=_SETTINGS).environment("trace-fast")
        code, results, said = run(words, {**environment, "STALLOC_MODEL_INFO_PATH": str(self._directory / name)})
        if code:
            raise RuntimeError(f"{self._program} could not be traced with {' '.join(words)}: {code}\n{said}")
        row = {
            "words": words,
            "outside_bytes": [rank["outside_bytes"] for rank in results],
            "seconds": results[0]["seconds"],
            "tokens": results[0]["tokens"],
            "live_bytes": results[0].get("live_bytes"),
        }
        write_json(path, row)
        print(f"{self._program}, {name}: {time.monotonic() - begin:.0f} s", flush=True)
        return row
