"""The processes of one distributed run on this machine.

`share_gpus`: where there are too few GPUs, ranks run as on nodes of so many each, all of which are this machine. What
each holds is what it would hold alone, and collectives are NCCL's own; steps are slower by far, since a GPU serves one
process at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_GRACE_SECONDS = 3.0  # for the others when one rank has failed: they may be waiting for it
_TIME_OVER = 124


def place(rank: int, count: int, share_gpus: int = 0) -> dict[str, str]:
    """The variables that torchrun would set for the rank."""
    on_node = min(share_gpus or count, count)
    found = {"RANK": str(rank), "WORLD_SIZE": str(count)}
    found |= {"LOCAL_RANK": str(rank % on_node), "LOCAL_WORLD_SIZE": str(on_node)}
    if on_node < count:  # NCCL takes each node for a host of its own, and goes through the loopback interface
        found |= {"NCCL_HOSTID": f"node{rank // on_node}", "NCCL_SOCKET_IFNAME": "lo"}
    return found


def run_ranks(
    command: Sequence[str],
    count: int,
    environment: Mapping[str, str],
    directory: Path,
    *,
    port: int,
    limit_seconds: float,
    share_gpus: int = 0,
    grouped: bool = True,
) -> tuple[int, str]:
    """Runs a script and its arguments as `count` ranks: 0, the exit code of the first rank that fails, or 124 where the
    time was over; and what they printed, one after the other. Output of rank N goes to `directory`/logN.txt.

    Args:
        grouped: they know their ranks; without it a program runs as `python` starts it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    logs = [directory / f"log{rank}.txt" for rank in range(count)]
    processes = []
    for rank, log in enumerate(logs):
        own = dict(environment)
        if grouped:
            own |= {**place(rank, count, share_gpus), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with log.open("w") as file:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *command], env=own, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                    start_new_session=True,
                )
            )  # fmt: skip
    code = _wait(processes, time.monotonic() + limit_seconds)
    return code, "".join(log.read_text(errors="replace") for log in logs)


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> int:
    failed = 0
    try:
        while None in [process.poll() for process in processes]:
            if time.monotonic() > deadline:
                failed = failed or _TIME_OVER
                break
            if not failed and (failed := _first_failure(processes)):
                deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            time.sleep(0.05)
        return failed or _first_failure(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    return next((process.returncode for process in processes if process.returncode), 0)
