"""Traces of a few ranks, copied to stand for many: each copy has its own rank in its fingerprint, so that none is the
same file as another."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Union

_FINGERPRINT, _WORLD_SIZE, _RANK = 3, 5, 6  # fields of proto/trace.proto
_MAGIC_BYTES, _HEADER = 8, struct.Struct("<II")


def copy_ranks(traces: Sequence[Path], run: Path, ranks: int) -> None:
    """Fills the run's trace folder: rank N has the trace N modulo as many as there are."""
    (run / "trace").mkdir(parents=True)
    kinds = [path.read_bytes() for path in traces]
    for rank in range(ranks):
        (run / "trace" / f"rank{rank:05d}.trace").write_bytes(with_rank(kinds[rank % len(kinds)], rank, ranks))


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
