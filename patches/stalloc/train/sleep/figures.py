"""What a sleep or a wake did, and what stays on the device besides."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from stalloc.core.sizes import size

CPU = -1  # a device's number


@dataclasses.dataclass(frozen=True)
class DeviceFigures:
    """The figures of one device; bytes and seconds. docs/sleep.md says what each is."""

    device: int
    blocks: int
    kept_bytes: int
    dropped_bytes: int
    copied_bytes: int
    copies: int
    given_back_bytes: int
    asleep_bytes: int
    arena_bytes: int
    upstream_reserved_bytes: int
    upstream_live_bytes: int
    host_pool_bytes: int
    pool_seconds: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Stay:
    """Memory that no sleep gives back, and why."""

    device: int
    what: str
    bytes: int
    why: str


@dataclasses.dataclass(frozen=True)
class SleepResult:
    """What `stalloc.sleep` or `stalloc.wake` did, of each device and of all together (bytes, seconds)."""

    devices: tuple[DeviceFigures, ...]
    asleep: bool  # else it is a wake

    @classmethod
    def parse(cls, figures: dict[str, Any], asleep: bool) -> SleepResult:
        """The figures in the library's JSON; keys of a newer one are left out."""
        known = [field.name for field in dataclasses.fields(DeviceFigures)]
        rows = (DeviceFigures(**{name: row[name] for name in known}) for row in figures["devices"])
        return cls(tuple(rows), asleep)

    @property
    def blocks(self) -> int:
        return sum(device.blocks for device in self.devices)

    @property
    def kept_bytes(self) -> int:
        return sum(device.kept_bytes for device in self.devices)

    @property
    def dropped_bytes(self) -> int:
        return sum(device.dropped_bytes for device in self.devices)

    @property
    def copied_bytes(self) -> int:
        return sum(device.copied_bytes for device in self.devices)

    @property
    def given_back_bytes(self) -> int:
        return sum(device.given_back_bytes for device in self.devices)

    @property
    def asleep_bytes(self) -> int:
        return sum(device.asleep_bytes for device in self.devices)

    @property
    def seconds(self) -> float:
        return sum(device.seconds for device in self.devices)

    def stays(self) -> tuple[Stay, ...]:
        """What a sleep leaves on the devices in addition to their contexts, largest first. Queries PyTorch's allocator
        now."""
        if not self.asleep:
            return ()
        rows = [row for device in self.devices for row in _stays_of(device)]
        return tuple(sorted((row for row in rows if row.bytes > 0), key=lambda row: -row.bytes))

    def to_dict(self) -> dict[str, Any]:
        """The form for JSON."""
        return {
            "devices": [dataclasses.asdict(device) for device in self.devices],
            "stays": [dataclasses.asdict(row) for row in self.stays()],
        }

    def __str__(self) -> str:
        parts = [f"{size(self.copied_bytes)} copied", f"{size(self.given_back_bytes)} of device memory"]
        if self.dropped_bytes:
            parts.insert(1, f"{size(self.dropped_bytes)} dropped")
        return f"{', '.join(parts)}, {self.seconds:.3f} s"


def _stays_of(device: DeviceFigures) -> list[Stay]:
    of_pools, in_pools = (0, 0) if device.device == CPU else _pools_of(device.device)
    live = max(device.upstream_live_bytes - in_pools, 0)
    cached = max(device.upstream_reserved_bytes - of_pools - live, 0)
    return [
        Stay(device.device, "arena", device.arena_bytes, "chunks in which blocks lie that are awake"),
        Stay(
            device.device,
            "PyTorch's allocator",
            live,
            "live blocks that no arena serves: small, from before the arena, or requested outside of it",
        ),
        Stay(device.device, "graph pools", of_pools, "a graph reads them when it is replayed; freed with the graph"),
        Stay(device.device, "cache", cached, "next to live blocks in the same segments of PyTorch's allocator"),
    ]


def _pools_of(device: int) -> tuple[int, int]:
    """Bytes of pools other than the default one: reserved, and live among them."""
    torch = sys.modules["torch"]
    segments = [
        segment
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == device and tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    ]
    return sum(segment["total_size"] for segment in segments), sum(segment["allocated_size"] for segment in segments)
