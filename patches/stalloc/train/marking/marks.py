"""Marks: what the training loop says about itself, numbered as proto/trace.proto numbers them.

`Marker` counts and forwards; the functions that scripts call stand in `train/api.py` and cost nothing where no
marker is active. A mark can be a plain call (its beginning only) or a context manager (beginning and end):

    stalloc.iteration()                 with stalloc.iteration():
    ...                                     ...
"""

from __future__ import annotations

from types import TracebackType
from typing import Callable, Optional

INIT, ITERATION, MICROBATCH, OPTIMIZER, LAYER, FENCE = 1, 2, 3, 4, 5, 6  # MarkKind
BEGIN, END = 1, 2  # MarkEdge
INPUTS_TRACED, CACHES_TRACED = 1, 2  # of the end of a layer's forward pass: see proto/FORMAT.md
_UNIT = 512  # bytes
PASSES = {"": 0, "F": 1, "B": 2, "W": 3, "FB": 4, "O": 5}  # Pass

# kind, edge, pass, chunk, index, name, automatic: the signature of stalloc_mark.
MarkSink = Callable[[int, int, int, int, int, Optional[bytes], int], object]


def check_pass(kind: str) -> None:
    """ValueError for anything but F, B, W, FB and O."""
    if kind not in PASSES or not kind:
        raise ValueError(f"kind must be one of F, B, W, FB, O: {kind!r}")


class NoMark:
    """What a mark returns where nothing listens."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        return None


NO_MARK = NoMark()


class OpenMark(NoMark):
    """A mark that has begun; leaving it as a context manager ends it."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self._end()


class OptimizerMark(OpenMark):
    """The optimizer's part. As a context manager it ends itself; else where the optimizer's step returns."""

    __slots__ = ("_held",)

    def __init__(self, end: Callable[[], object], held: Callable[[], object]) -> None:
        super().__init__(end)
        self._held = held

    def __enter__(self) -> None:
        self._held()


def _nothing(*_: object) -> None:
    """Where the marks of a silenced marker go."""


class Marker:
    """Counts iterations and micro-batches, and forwards every mark to `sink`.

    `finished` is called for each iteration that is over, with its index. Marks come from the one thread that runs the
    loop.
    """

    def __init__(self, sink: MarkSink, finished: Callable[[int], object]) -> None:
        self._sink = sink
        self._finished = finished
        self._next_iteration = 0
        self._running: Optional[int] = None  # the explicit iteration that has begun and not ended
        self._microbatches: dict[tuple[str, int], int] = {}
        self.explicit = False  # the script marks its iterations itself
        self._explicit_optimizer = False
        self._open_optimizer: Optional[bool] = None  # an explicit mark is; True: a context manager ends it
        self._optimizer_returned = False  # the last explicit mark was ended by a step, and nothing has begun since
        self._stepped = False  # an optimizer has ended the iteration since the last step()

    def _mark(
        self, kind: int, number: int = 0, chunk: int = 0, index: int = 0, name: Optional[bytes] = None
    ) -> OpenMark:
        self._sink(kind, BEGIN, number, chunk, index, name, 0)
        return OpenMark(lambda: self._sink(kind, END, number, chunk, index, name, 0))

    def iteration(self, index: Optional[int]) -> OpenMark:
        """Begins an iteration of the script's loop, and with it ends the one before."""
        self.finish()
        if not self.explicit:
            self.explicit = True
            self._next_iteration = 0
        number = self._next_iteration if index is None else int(index)
        self._begin(number, automatic=0)
        self._running = number
        return OpenMark(lambda: self._end_iteration(number))

    def init_ends(self) -> None:
        """A forward pass begins. Nothing where the loop has begun already."""
        if self._running is None and self._next_iteration == 0:
            self._sink(INIT, END, 0, 0, 0, None, 1)

    def _begin(self, number: int, automatic: int) -> None:
        self._next_iteration = number + 1
        self._microbatches.clear()
        self._forget_optimizer()
        self._sink(ITERATION, BEGIN, 0, 0, number, None, automatic)

    def _end_iteration(self, number: int) -> None:
        self._sink(ITERATION, END, 0, 0, number, None, 0)
        if self._running == number:
            self.finish()

    def finish(self) -> None:
        """Reports the explicit iteration that runs, if any; the end of the process calls it, too."""
        if self._running is not None:
            running, self._running = self._running, None
            self._finished(running)

    def silence(self, finished: Callable[[int], object] = _nothing) -> None:
        """From now on nothing is forwarded; `finished` is still called for iterations, if there is one."""
        self._sink, self._finished = _nothing, finished

    def automatic_boundary(self) -> None:
        """An optimizer has stepped: what ran until now was one iteration, the next begins."""
        if self.explicit:
            return
        self._stepped = True
        if self._next_iteration == 0:
            self._next_iteration = 1  # the first one began with the process
        self._finished(self._next_iteration - 1)
        self._begin(self._next_iteration, automatic=1)

    def step(self) -> None:
        """The loop says that an iteration is over. Nothing where an optimizer has said so since the last call.

        Raises:
            RuntimeError: the script marks the beginnings of its iterations.
        """
        if self.explicit:
            raise RuntimeError("iterations are marked by stalloc.iteration() already; step() would count them twice")
        if not self._stepped:
            self.automatic_boundary()
        self._stepped = False

    def microbatch(self, kind: str, index: Optional[int], chunk: int) -> OpenMark:
        key = (kind, chunk)
        number = self._microbatches.get(key, 0) if index is None else int(index)
        self._microbatches[key] = number + 1
        self._forget_optimizer()
        return self._mark(MICROBATCH, PASSES[kind], chunk, number)

    def layer(self, name: str, kind: str) -> OpenMark:
        return self._mark(LAYER, PASSES[kind], name=name.encode())

    def module(self, path: str, kind: str, begins: bool, kept_bytes: Optional[int] = None, inputs: int = 0) -> None:
        """A layer mark of the module hooks; from any thread, unlike the others.

        Args:
            path: of the module.
            kind: F or B.
            begins: else it ends.
            kept_bytes: where a forward pass ends, of the output, that the module's own backward pass keeps; -1: there
                are no gradients. The mark's index is 1 + the units of 512 bytes, -1, or 0 where it is not known.
            inputs: where a forward pass ends, INPUTS_TRACED: the trace has all blocks that it was called with;
                CACHES_TRACED: and what it has stored there can be switched off. The mark's chunk.
        """
        index = 0 if kept_bytes is None else -1 if kept_bytes < 0 else 1 + -(-kept_bytes // _UNIT)
        self._sink(LAYER, BEGIN if begins else END, PASSES[kind], inputs, index, path.encode(), 0)

    def optimizer(self) -> OptimizerMark:
        self._explicit_optimizer = True
        self._open_optimizer = False
        self._optimizer_returned = False
        self._sink(OPTIMIZER, BEGIN, 0, 0, 0, None, 0)
        return OptimizerMark(self._end_optimizer, self._hold_optimizer)

    def _hold_optimizer(self) -> None:
        self._open_optimizer = True

    def _end_optimizer(self) -> None:
        if self._open_optimizer is not None:
            self._open_optimizer = None
            self._sink(OPTIMIZER, END, 0, 0, 0, None, 0)

    def _forget_optimizer(self) -> None:
        self._open_optimizer = None
        self._optimizer_returned = False

    def step_begins(self) -> None:
        """A step of an optimizer, inside no other: after one that has ended the explicit mark, it opens it again."""
        if self._optimizer_returned:
            self.optimizer()

    def step_ends(self) -> None:
        """The same step has returned: what follows is no part of the optimizer, unless a context manager says so."""
        if self._open_optimizer is False:
            self._end_optimizer()
            self._optimizer_returned = True

    def automatic_optimizer(self, edge: int = BEGIN) -> None:
        if self._explicit_optimizer:
            return
        self._sink(OPTIMIZER, edge, 0, 0, 0, None, 1)

    def fence(self, kind: str) -> OpenMark:
        return self._mark(FENCE, name=kind.encode())
