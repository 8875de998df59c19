"""Iterations of programs that capture their optimizer's step: a replay of such a CUDA graph makes one.

The hooks of optimizers run while the step is captured, and in no replay. So what a capture says of a step is kept with
its graph, and each replay ends an iteration as a step's end does. Seen is what goes through `torch.cuda.CUDAGraph`.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

_HAS_STEP = "_stalloc_has_step"  # of a graph


class CapturedSteps:
    """Calls `ended` after each replay of a graph that a step was captured in; on the thread that replays it."""

    def __init__(self, ended: Callable[[], object]) -> None:
        self._ended = ended
        self._open = threading.local()  # .steps: of the capture that this thread has begun, else none

    def install(self, torch: Any) -> None:
        """Replaces methods of torch.cuda.CUDAGraph, where there is one."""
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is None:
            return
        graph.capture_begin = self._capture_begin(graph.capture_begin)
        graph.capture_end = self._capture_end(graph.capture_end)
        graph.replay = self._replay(graph.replay)

    def captures_step(self) -> bool:
        """A step has ended on this thread. True: it was captured, so that nothing has run yet."""
        steps = getattr(self._open, "steps", None)
        if steps is None:
            return False
        self._open.steps = steps + 1
        return True

    def _capture_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(graph, *args, **kwargs)
            self._open.steps = 0
            return result

        return capture_begin

    def _capture_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any) -> Any:
            steps, self._open.steps = getattr(self._open, "steps", None), None
            result = original(graph)
            setattr(graph, _HAS_STEP, bool(steps))
            return result

        return capture_end

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any) -> Any:
            result = original(graph)
            if getattr(graph, _HAS_STEP, False):
                self._ended()
            return result

        return replay
