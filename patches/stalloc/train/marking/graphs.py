"""Layer marks around captures and replays of CUDA graphs: "CUDA graph 2 capture", "CUDA graph 2 replay".

They show in a trace when a graph's pool is written: what lies in it is live on the device during a replay, though no
allocation is made then. Graphs are numbered from 0 in the order of their first captures. Seen is what goes through
`torch.cuda.CUDAGraph`, which `torch.cuda.graph`, `make_graphed_callables` and torch.compile's graphs do; not what C++
code launches. A run from the plan needs none of these marks.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable

_NUMBER = "_stalloc_number"  # of a graph

# The mark's name, and whether it begins.
GraphSink = Callable[[str, bool], object]


class GraphMarks:
    """Reports to `sink` where captures and replays begin and end, on the thread that makes them; it must be
    thread-safe."""

    def __init__(self, sink: GraphSink) -> None:
        self._sink = sink
        self._numbers = itertools.count()

    def install(self, torch: Any) -> None:
        """Replaces methods of torch.cuda.CUDAGraph, where there is one."""
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is None:
            return
        graph.capture_begin = self._capture_begin(graph.capture_begin)
        graph.capture_end = self._capture_end(graph.capture_end)
        graph.replay = self._replay(graph.replay)

    def _capture_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            name = self._name(graph, "capture")
            self._sink(name, True)
            try:
                return original(graph, *args, **kwargs)
            except BaseException:
                self._sink(name, False)
                raise

        return capture_begin

    def _capture_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any) -> Any:
            try:
                return original(graph)
            finally:
                self._sink(self._name(graph, "capture"), False)

        return capture_end

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any) -> Any:
            name = self._name(graph, "replay")
            self._sink(name, True)
            try:
                return original(graph)
            finally:
                self._sink(name, False)

        return replay

    def _name(self, graph: Any, what: str) -> str:
        number = getattr(graph, _NUMBER, None)
        if number is None:
            number = next(self._numbers)
            setattr(graph, _NUMBER, number)
        return f"CUDA graph {number} {what}"
