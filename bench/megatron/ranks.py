"""The processes of one distributed run on this machine, started ahead of it.

Importing torch and Megatron takes as long as a short run trains. `Ranks` starts the processes, which import and wait;
`run` lets them go. Many runs can be made ready at once, and then follow each other without that delay. What a rank
runs, and the allocator that it gets, is that of a process of its own: `import stalloc` in the script comes behind the
imports, and before CUDA is initialised.

`share_gpus`: where there are too few GPUs, ranks run as on nodes of so many each, all of which are this machine. What
each holds is what it would hold alone, and collectives are NCCL's own; steps are slower by far, since a GPU serves one
process at a time.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
_GRACE_SECONDS = 3.0  # for the others when one rank has failed: they may be waiting for it


class Ranks:
    """Processes of one run. Output of rank N goes to `directory`/logN.txt."""

    def __init__(
        self,
        count: int,
        modules: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        share_gpus: int = 0,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._share_gpus = share_gpus
        self._ready = False
        self._logs = [directory / f"log{rank}.txt" for rank in range(count)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "waiting_rank.py"), str(log), *modules],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for log in self._logs
        ]

    def wait_until_ready(self) -> None:
        """RuntimeError where a rank cannot import what it shall."""
        if self._ready:
            return
        for process, log in zip(self._processes, self._logs):
            assert process.stdout is not None
            if "ready\n" not in iter(process.stdout.readline, ""):
                raise RuntimeError(f"a rank ended while it imported: {log.read_text(errors='replace')[-2000:]}")
        self._ready = True

    def run(
        self, script: Path, arguments: Sequence[str], environment: Mapping[str, str], port: int, limit_seconds: float
    ) -> int:
        """Runs `script`; 0, or the exit code of the first rank that fails, 124 where the time was over."""
        self.wait_until_ready()
        for rank, process in enumerate(self._processes):
            place = {**self._place(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            order = {"script": str(script), "arguments": list(arguments), "environment": {**environment, **place}}
            assert process.stdin is not None
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.close()
        return self._wait(time.monotonic() + limit_seconds)

    def _place(self, rank: int) -> dict[str, str]:
        count = len(self._processes)
        on_node = min(self._share_gpus or count, count)
        place = {"RANK": str(rank), "WORLD_SIZE": str(count)}
        place |= {"LOCAL_RANK": str(rank % on_node), "LOCAL_WORLD_SIZE": str(on_node)}
        if on_node < count:  # NCCL takes each node for a host of its own, and goes through the loopback interface
            place |= {"NCCL_HOSTID": f"node{rank // on_node}", "NCCL_SOCKET_IFNAME": "lo"}
        return place

    def end(self) -> None:
        """Ends what still runs or waits."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def output(self) -> str:
        """Of all ranks, one after the other."""
        return "".join(log.read_text(errors="replace") for log in self._logs)

    def _wait(self, deadline: float) -> int:
        failed = 0
        while any(process.poll() is None for process in self._processes):
            if time.monotonic() > deadline:
                failed = failed or 124
                break
            if not failed:
                failed = self._first_failure()
                if failed:
                    deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            time.sleep(0.05)
        self.end()
        return failed or self._first_failure()

    def _first_failure(self) -> int:
        return next((process.returncode for process in self._processes if process.returncode), 0)
