"""Runs a training program in this process, unchanged, and reports its steps to its parent.

    python bench/card/child.py --report steps.jsonl --steps 20 -- train.py --batch 8
    STALLOC_MODE=Alloc ... python -m stalloc run bench/card/child.py --report steps.jsonl --steps 20 -- -m package.train

A step ends with every --optimizer-steps'th step() of the first optimizer that makes one; when that optimizer is gone,
the next one takes its place. There the device is synchronised. A step's time runs from the end of the one before it, or
from the moment this process was let go (--turns), to that point, in seconds; the first one includes the set-up.

Reports are lines of JSON: {"event": "ready"}, for each step {"event": "step", "index", "seconds", "host_seconds"
(before the device is synchronised), "at" (the system's monotonic clock), "retries" (num_alloc_retries so far), "last"
(of --steps)}, and at the end {"event": "end", ...} or {"event": "out_of_memory", ...}, both with bytes and counters.
The exit code is 3 where memory was not enough.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import sys
import time
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Callable, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).resolve().parent
EXIT_OUT_OF_MEMORY = 3
_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|(CUBLAS|CUSOLVER|CUSPARSE)_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
    r"|CUDNN_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)",
    re.IGNORECASE,
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--report", required=True, metavar="FD|FILE", help="where the lines of JSON go; {rank}: of torchrun"
    )
    parser.add_argument(
        "--turns", type=int, metavar="FD", help="wait for one byte from FD before the program and after each step"
    )
    parser.add_argument("--steps", type=int, default=0, help="end the program after N steps (default: let it end)")
    parser.add_argument("--optimizer-steps", type=int, default=1, help="optimizer steps that make one step")
    parser.add_argument("--warm-up", type=int, default=10, help="stalloc's counters are read after N steps, too")
    parser.add_argument("--card", type=int, metavar="BYTES", help="occupy the rest of the GPU; the context is included")
    parser.add_argument("--core", type=int, metavar="N", help="the program's threads run on this core of the host")
    parser.add_argument("program", nargs="+", help="a script, or -m and a module, with its arguments, after --")
    return parser.parse_args()


class Memory:
    """Peaks of this process, also where the program resets PyTorch's, and what stalloc counts."""

    def __init__(self, card: Optional[int]) -> None:
        self._card = card
        self._peaks = {"live_bytes": 0, "held_bytes": 0}
        self._outside = 0
        memory = torch.cuda.memory
        reset = memory.reset_peak_memory_stats

        def reset_after_look(*arguments: Any, **named: Any) -> None:
            self.look()
            reset(*arguments, **named)

        memory.reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats = reset_after_look

    def look(self) -> None:
        if not torch.cuda.is_initialized():
            return
        stats = torch.cuda.memory_stats()
        for name, of_torch in (("live_bytes", "allocated"), ("held_bytes", "reserved")):
            self._peaks[name] = max(self._peaks[name], stats.get(f"{of_torch}_bytes.all.peak", 0))
        free, total = torch.cuda.mem_get_info()
        beyond = max(0, total - self._card) if self._card is not None else 0
        self._outside = max(self._outside, total - beyond - free - torch.cuda.memory_reserved())

    def figures(self) -> dict[str, Optional[int]]:
        """Bytes, and `ooms`, a count. `outside_bytes`: what is used of the GPU besides PyTorch's reserved memory."""
        self.look()
        if torch.cuda.is_initialized():
            ooms = torch.cuda.memory_stats().get("num_ooms", 0)  # also those that the program has caught
            return {**self._peaks, "outside_bytes": self._outside, "ooms": ooms}
        counted = counters()
        return {"live_bytes": counted.get("peak_live_bytes"), "held_bytes": counted.get("held_peak_bytes")}


def retries() -> int:
    """How often PyTorch gave back to the driver all that was free, because a request had failed."""
    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0)) if torch.cuda.is_initialized() else 0


def counters() -> dict[str, Any]:
    """stalloc's figures of its busiest device; empty where stalloc is not in place."""
    stalloc = sys.modules.get("stalloc")
    return {} if stalloc is None else {k: v for k, v in stalloc.stats().items() if not isinstance(v, (dict, list))}


class Steps:
    """Sees where steps end, reports them, and waits until this process may go on."""

    def __init__(self, chosen: argparse.Namespace, report: Callable[[dict[str, Any]], None]) -> None:
        self._chosen, self._report = chosen, report
        self._memory = Memory(chosen.card)
        self._optimizer: Optional[weakref.ref[Any]] = None
        self._optimizer_steps = 0
        self._count = 0
        self._at_warm_up: dict[str, Any] = {}
        self._ended = False
        self._began = time.perf_counter()

    def begin(self) -> None:
        uncompiled = getattr(torch, "_disable_dynamo", lambda hook: hook)  # a compiled step calls the hook as it is
        register_optimizer_step_post_hook(uncompiled(lambda optimizer, *_: self._after_optimizer(optimizer)))
        self._wait()

    def end(self, **more: Any) -> None:
        """The last report: once."""
        if not self._ended:
            self._ended = True
            self._report({"event": "end", **self._figures(), **more})

    def _figures(self) -> dict[str, Any]:
        device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else "CPU"
        stalloc = {"at_warm_up": self._at_warm_up, "at_end": counters()}
        return {"steps": self._count, "device": device, "retries": retries(), **self._memory.figures(), **stalloc}

    def _after_optimizer(self, optimizer: Any) -> None:
        if not self._counts(optimizer) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return
        self._optimizer_steps += 1
        if self._optimizer_steps % self._chosen.optimizer_steps == 0:
            self._after_step()

    def _counts(self, optimizer: Any) -> bool:
        """Whether it is the one whose steps are counted."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = weakref.ref(optimizer)
        return self._optimizer() is optimizer

    def _after_step(self) -> None:
        host_seconds = time.perf_counter() - self._began
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - self._began
        at = time.monotonic()
        self._memory.look()
        step = {"event": "step", "index": self._count, "seconds": seconds, "host_seconds": host_seconds, "at": at}
        step["retries"] = retries()
        self._count += 1
        if self._count == self._chosen.warm_up:
            self._at_warm_up = counters()
        last = self._count == self._chosen.steps
        self._report({**step, "last": last})
        if last:
            self.end()
        self._wait()
        if last:
            raise SystemExit(0)

    def _wait(self) -> None:
        if self._chosen.turns is not None and not os.read(self._chosen.turns, 1):
            os._exit(1)  # the parent of this process is gone
        self._began = time.perf_counter()


def causes(error: Optional[BaseException]) -> Iterator[BaseException]:
    """The error, and those that it was raised from or while handling."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def out_of_memory(error: BaseException) -> Optional[str]:
    """The first line of such an error, or of one that it came from; None: it is about something else."""
    for each in causes(error):
        text = str(each)
        if isinstance(each, torch.OutOfMemoryError) or (isinstance(each, RuntimeError) and _NO_MEMORY.search(text)):
            return (text.splitlines() or ["out of memory"])[0]
    return None


def opened(report: str) -> IO[str]:
    report = report.replace("{rank}", os.environ.get("RANK", "0").zfill(5))
    if not report.isdigit():
        return open(report, "w", buffering=1, encoding="utf-8")
    os.set_inheritable(int(report), False)
    return open(int(report), "w", buffering=1, encoding="utf-8")


def run_program(words: list[str]) -> None:
    """As python would: __main__, sys.argv and sys.path[0] are the program's."""
    module = words[1] if words[0] == "-m" else None
    first = os.getcwd() if module else str(Path(words[0]).resolve().parent)
    if sys.path and Path(sys.path[0]).resolve() == HERE:
        sys.path[0] = first
    else:
        sys.path.insert(0, first)
    if module is not None:
        sys.argv = words[1:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def occupy_rest(card: int) -> None:
    """Leaves this process so many bytes of the GPU."""
    before = list(sys.path)
    sys.path.insert(0, str(HERE.parent))
    from occupied import occupy

    sys.path[:] = before
    occupy(card, torch.device("cuda", torch.cuda.current_device()))


def main() -> int:
    chosen = parse_arguments()
    if chosen.card is not None:
        occupy_rest(chosen.card)
    if chosen.turns is not None:
        os.set_inheritable(chosen.turns, False)
    if chosen.core is not None:
        os.sched_setaffinity(0, {chosen.core})  # of this thread, and of those that it starts
    file = opened(chosen.report)
    steps = Steps(chosen, lambda event: print(json.dumps(event), file=file, flush=True))
    print(json.dumps({"event": "ready"}), file=file, flush=True)
    steps.begin()
    try:
        run_program(chosen.program)
    except Exception as error:
        message = out_of_memory(error)
        if message is None:
            raise
        traceback.print_exc()
        steps.end(event="out_of_memory", message=message)
        sys.stdout.flush()
        os._exit(EXIT_OUT_OF_MEMORY)  # what waits for this process does not keep it
    except SystemExit as ended:
        if ended.code in (0, None):
            steps.end()
        raise
    steps.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
