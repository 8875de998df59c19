"""Planning for many ranks: the traces of a few, copied to stand for a thousand; time, memory and what was solved.

    python bench/many_ranks.py --json many_ranks.json
    python bench/many_ranks.py --ranks 64 run1/trace/rank0000*.trace

Without traces: the recorded runs of bench/corpus. Each copy has its own rank in its fingerprint, so none is the same
file as another. Then `stalloc plan` and `stalloc report --all` run over all of them, each
in a process of its own: wall, seconds of CPU, greatest resident memory of one process. Exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "patches"))

from stalloc.report import collect as planner  # noqa: E402  # starts it

_FINGERPRINT, _WORLD_SIZE, _RANK = 3, 5, 6  # fields of proto/trace.proto
_MAGIC_BYTES, _HEADER = 8, struct.Struct("<II")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, help="of the ranks that are copied (default: bench/corpus)")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2, help="of the planner")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the run there, and leave it")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


# Traces --------------------------------------------------------------------------------------------------------------


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(message: bytes) -> Iterator[tuple[int, Union[int, bytes], bytes]]:
    """Number, value and encoding of each field; of those two kinds that a first chunk has."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_varint(message, at)
        length_or_value, at = _read_varint(message, at)
        value: Union[int, bytes] = length_or_value
        if key & 7 == 2:
            value = message[at : at + length_or_value]
            at += length_or_value
        elif key & 7 != 0:
            raise ValueError(f"a field of wire type {key & 7}")
        yield key >> 3, value, message[begin:at]


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def with_rank(trace: bytes, rank: int, world_size: int) -> bytes:
    """The trace with that rank in the fingerprint of its first chunk."""
    length, _ = _HEADER.unpack_from(trace, _MAGIC_BYTES)
    rest = _MAGIC_BYTES + _HEADER.size + length
    chunk = bytearray()
    for number, value, encoded in _fields(trace[rest - length : rest]):
        if number != _FINGERPRINT or not isinstance(value, bytes):
            chunk += encoded
            continue
        own = b"".join(part for field, _, part in _fields(value) if field not in (_WORLD_SIZE, _RANK))
        own += _varint(_WORLD_SIZE << 3) + _varint(world_size) + _varint(_RANK << 3) + _varint(rank)
        chunk += _varint(_FINGERPRINT << 3 | 2) + _varint(len(own)) + own
    return trace[:_MAGIC_BYTES] + _HEADER.pack(len(chunk), _crc32c(bytes(chunk))) + bytes(chunk) + trace[rest:]


def events_of(recording: Path) -> Iterator[str]:
    """A recorded run, `iteration size_bytes alloc_tick free_tick` a line, as what `stalloc-planner import` reads."""
    with gzip.open(recording, "rt", encoding="ascii") as file:
        rows = [tuple(map(int, line.split())) for line in file if re.match(r"-?\d", line)]
    ticks = [(row[2], 1, i) for i, row in enumerate(rows)] + [
        (row[3], 0, i) for i, row in enumerate(rows) if row[3] >= 0
    ]
    iteration = -1
    yield from ("stalloc-events 1", "= trace_mode fast", "= world_size 1", "= rank 0")
    for tick, allocates, i in sorted(ticks):
        if not allocates:
            yield f"f {i} {tick * 1000}"
            continue
        if rows[i][0] != iteration:
            if iteration >= 0:
                yield f"m iteration end - 0 {iteration} {tick * 1000}"
            iteration = rows[i][0]
            yield f"m iteration begin - 0 {iteration} {tick * 1000}"
        yield f"a {i} {rows[i][1]} 0 0 {tick * 1000}"


def traces_of(arguments: argparse.Namespace, directory: Path) -> dict[str, bytes]:
    if arguments.traces:
        return {str(path): path.read_bytes() for path in arguments.traces}
    traces = {}
    for recording in sorted((ROOT / "bench" / "corpus").glob("*.txt.gz")):
        name = recording.name.removesuffix(".txt.gz")
        text = directory / f"{name}.events"
        text.write_text("\n".join(events_of(recording)) + "\n", encoding="ascii")
        planner.run_planner(["import", str(text), "--output", str(directory / f"{name}.trace"), "--json"])
        traces[name] = (directory / f"{name}.trace").read_bytes()
    return traces


def copy(traces: dict[str, bytes], run: Path, ranks: int) -> None:
    (run / "trace").mkdir(parents=True)
    kinds = list(traces.values())
    for rank in range(ranks):
        path = run / "trace" / f"rank{rank:05d}.trace"
        path.write_bytes(with_rank(kinds[rank % len(kinds)], rank, ranks))


# Commands ------------------------------------------------------------------------------------------------------------


def measured(words: list[str]) -> dict[str, Any]:
    """`stalloc WORDS`: what it took. RuntimeError where it fails."""
    path = os.pathsep.join([str(ROOT / "patches"), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "stalloc", *words], env={**os.environ, "PYTHONPATH": path}, stdout=out, stderr=err
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        out.seek(0)
        err.seek(0)
        text, told = out.read().decode(), err.read().decode()
        if process.returncode != 0:
            raise RuntimeError(f"stalloc {' '.join(words)}: {told[-2000:]}")
        return {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_bytes": usage.ru_maxrss * 1024,
            "lines": text.count("\n"),
            "lines_of_progress": told.count("\n"),
        }


def solved(run: Path) -> dict[str, int]:
    """Ranks whose reports say that nobody had their packing before."""
    reports = sorted((run / "output" / "trace_analysis").glob("rank*.json"))
    own = sum(json.loads(path.read_text(encoding="utf-8"))["same_as_rank"] is None for path in reports)
    plans = len(list((run / "output" / "plan").glob("rank*.plan")))
    return {"reports": len(reports), "plans": plans, "solved": own}


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as temporary:
        run = arguments.keep or Path(temporary) / "run"
        traces = traces_of(arguments, Path(temporary))
        copy(traces, run, arguments.ranks)
        result: dict[str, Any] = {
            "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
            "ranks": arguments.ranks,
            "different": {name: len(trace) for name, trace in traces.items()},
            "trace_bytes": sum(path.stat().st_size for path in (run / "trace").iterdir()),
            "plan": measured(["plan", str(run), f"--threads={arguments.threads}"]),
            **solved(run),
            "trace_only": measured(["plan", str(run), f"--threads={arguments.threads}", "--trace-only"]),
            "report_all": measured(["report", str(run), "--all"]),
        }
        pages = list((run / "output" / "report").rglob("*.html"))
        result["report_all"] |= {"pages": len(pages), "page_bytes": sum(path.stat().st_size for path in pages)}
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.json is not None:
        part = arguments.json.with_suffix(".part")
        part.write_text(text + "\n", encoding="utf-8")
        part.rename(arguments.json)
    return 0 if result["plans"] == arguments.ranks else 1


if __name__ == "__main__":
    sys.exit(main())
