"""A fake run: the device, the mode and the changes to torch, for a process (STALLOC_TRACE_FAKE) or a `with` block."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch

from stalloc.core import log
from stalloc.core.library import TorchLibrary
from stalloc.train import imports
from stalloc.train.fake import choices, cuda, ranks
from stalloc.train.fake.blocks import Blocks
from stalloc.train.fake.patches import Patches
from stalloc.train.fake.tensors import DeviceOfFakes
from stalloc.train.fake.unknown import Assumptions, FakeTraceError, UnknownValues, as_facts
from stalloc.train.fake.values import KnownValues
from stalloc.train.fake.workspaces import Workspaces
from stalloc.train.marking.marks import MarkSink
from stalloc.train.marking.tracing import ENDED, Tracing

_TRANSFORMERS = "transformers.utils.import_utils"
_SHARDING = "torch.distributed.tensor._sharding_prop"
_SHAPES = "_propagate_tensor_meta_non_cached"
_NOTHING = "the program has no tensor on the GPU, so its trace is empty: --device cpu traces what it has on the CPU"


class FakeRun:
    """Between begin() and end() tensors of the device are fake, on the thread that called and those that start."""

    def __init__(self, library: TorchLibrary, device: str, assumptions: Assumptions, facts: Path) -> None:
        self.library = library
        self._device = device
        self._facts = facts
        self._values = UnknownValues(torch, assumptions)
        self._streams = cuda.Streams()
        self._blocks = Blocks(library, lambda: self._streams.present.cuda_stream)
        self._known = KnownValues(device)
        workspaces = Workspaces(self._blocks, cuda.CAPABILITY) if device == "cuda" else None
        self._mode = DeviceOfFakes(device, self._blocks, self._values, self._known, workspaces)
        self._patches = Patches()
        self._left = False  # the program is at its end
        self._iterations: Optional[int] = None  # that ran to their end, where they are counted
        self._warned: set[str] = set()

    def begin(self, to_the_end: bool = False) -> None:
        """With `to_the_end` it runs for the rest of the process: its assumptions are printed when the program ends, and
        its errors in a line."""
        if to_the_end:
            self._iterations = 0
            atexit.register(self._leave)
            _explain_errors()
        if self._device == "cuda":
            cuda.install(self._patches, self._figures, self._warn, self._streams, self._blocks)
        choices.install(self._patches, self._device, self._warn)
        imports.when_imported(_TRANSFORMERS, self._go_by_values)
        imports.when_imported(_SHARDING, self._leave_shapes_out)
        ranks.install(self._patches)
        self._mode.one_thread_at_a_time(self._patches)
        self._mode.on_every_thread(self._patches)
        self._install_reads()
        # The engine's threads have no Python stack: a pass on the caller's own has one that says where it comes from.
        self._patches.call(
            lambda: torch._C._set_multithreading_enabled(False), lambda: torch._C._set_multithreading_enabled(True)
        )
        self._mode.__enter__()

    # transformers takes fake tensors for those of a compiler, and makes masks that a run would not have.
    def _go_by_values(self, transformers: Any) -> None:
        if hasattr(transformers, "is_fake_tensor"):
            self._patches.set(transformers, "is_fake_tensor", lambda _: False)

    # Operators of distributed tensors are run on fake ones as large as all shards first, for their shapes, in the fake
    # mode that there is.
    def _leave_shapes_out(self, sharding: Any) -> None:
        propagator = sharding.ShardingPropagator
        if hasattr(propagator, _SHAPES):
            self._patches.set(propagator, _SHAPES, self._mode.of_nobody(getattr(propagator, _SHAPES)))

    def end(self) -> None:
        imports.forget(_TRANSFORMERS, self._go_by_values)
        imports.forget(_SHARDING, self._leave_shapes_out)
        self._mode.__exit__(None, None, None)
        self._patches.undo()
        self.settle()
        self.write_facts()

    def settle(self) -> None:
        self._blocks.settle()

    def address(self, tensor: Any) -> int:
        """Where the names of tensors go: the block of a tensor's storage."""
        return self._blocks.address(tensor.untyped_storage())

    def write_facts(self) -> None:
        """Writes the assumptions of the trace into a file next to it."""
        self._facts.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._facts.with_suffix(".tmp")
        facts = {
            "device": self._device,
            "torch": torch.__version__,
            "iterations": self._iterations,
            **as_facts(self._values.assumptions, self._values.read),
        }
        temporary.write_text(json.dumps(facts, indent=1) + "\n")
        temporary.replace(self._facts)

    def _closing_lines(self) -> list[str]:
        """Prints the end of `stalloc run --fake`."""
        read = self._values.read
        lines = [
            f"values that a fake run does not have were read: {where} {operator} ({times} x)"
            for (operator, where), times in sorted(read.items())
        ]
        return lines[:5] + ([f"and at {len(lines) - 5} more places: {self._facts}"] if len(lines) > 5 else [])

    def in_order(self, mark: MarkSink) -> MarkSink:
        """A mark comes after all blocks that were made before it."""

        def settled(*words: Any) -> None:
            self._blocks.settle()
            mark(*words)

        return settled

    def leaver(self, tracing: Tracing) -> Callable[[int], None]:
        """To be called after each iteration: ends the program with the trace, since a fake run is good for nothing
        else."""

        def iteration_finished(_: int) -> None:
            self._iterations = (self._iterations or 0) + 1
            if tracing.state == ENDED and not self._left:
                if not self._blocks.were:
                    raise FakeTraceError(_NOTHING)
                raise SystemExit(0)

        return iteration_finished

    def _leave(self) -> None:
        self._left = True
        self.settle()
        self.write_facts()
        if not self._blocks.were:
            self._warn(_NOTHING)
        elif self._iterations == 0:
            self._warn("the program ended in its first iteration: its trace can neither be planned nor scaled")
        for line in self._closing_lines():
            log.info(line)

    # -- Queries of fake tensors outside of operators

    def _install_reads(self) -> None:
        resize = torch.UntypedStorage.resize_
        self._patches.set(
            torch.UntypedStorage,
            "resize_",
            lambda storage, size: self._blocks.resize(storage, lambda: resize(storage, size)),
        )
        self._patches.set(FakeTensor, "numpy", lambda tensor, **_: self._numpy(tensor))
        self._patches.set(FakeTensor, "tolist", lambda tensor: self._numpy(tensor).tolist())

    def _numpy(self, tensor: Any) -> Any:
        known = self._known.of(tensor)
        if known is None:
            self._values.note(".numpy()")
        with _python_dispatch._disable_current_modes():
            return (torch.zeros(tensor.shape, dtype=tensor.dtype) if known is None else known.clone()).numpy()

    def _figures(self) -> tuple[int, int]:
        self._blocks.settle()
        device = self.library.stats()["devices"][0]
        return device["live_bytes"], device["peak_live_bytes"]

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning(text)


def _explain_errors() -> None:
    usual = sys.excepthook

    def explain(kind: Any, value: Any, traceback: Any) -> None:
        if isinstance(value, FakeTraceError):
            print(f"stalloc: {value}", file=sys.stderr)
            return
        log.info("the program ran on fake tensors, which have shapes, but neither values nor memory")
        usual(kind, value, traceback)

    sys.excepthook = explain


def facts_path(directory: str, rank: str) -> Path:
    """The file next to the rank's trace."""
    return Path(directory or os.curdir) / "trace" / f"rank{int(rank or 0):05d}.fake.json"
