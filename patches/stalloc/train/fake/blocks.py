"""Storages of fake tensors as blocks of a device: each birth and death goes to the trace, in order.

Threads: callbacks come on whatever thread lets go of a storage, under the interpreter's lock.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional, Protocol


class Device(Protocol):
    """What takes the requests: TorchLibrary."""

    def fake_allocate(self, size: int, stream: int) -> Optional[int]: ...

    def fake_record_stream(self, block: int, stream: int) -> None: ...

    def fake_free(self, block: int) -> None: ...


class Blocks:
    """What lives. A storage is named by its address in torch, a block by that which the device has given it."""

    def __init__(self, device: Device, stream: Callable[[], int] = lambda: 0) -> None:
        """`stream`: the number of the one that the present thread is on."""
        self._device, self.stream = device, stream
        self.were = False  # any, so far
        self._blocks: dict[int, int] = {}
        self._alive: dict[int, Any] = {}  # weak references, whose callbacks report the end
        self._dead: list[Optional[int]] = []
        self._sum: Optional[tuple[int, int, int]] = None  # Note [Sums of gradients]: result, left operand, bytes

    def see(self, storage: Any, sum_into: Optional[Any] = None) -> None:
        """A storage that an operator has returned; nothing where it is known. `sum_into`: the storage of a left operand
        that torch would have added to in place, had it been an ordinary tensor that nothing else holds."""
        key = storage._cdata
        if key in self._alive:
            return
        self.settle()
        size = storage.nbytes()
        self._alive[key] = weakref.ref(storage, lambda _: self._die(key))
        if sum_into is not None and sum_into._cdata in self._blocks and sum_into.nbytes() == size:
            self._sum = (key, sum_into._cdata, size)
        else:
            self._allocate(key, size)

    def see_copied(self, copies: Sequence[int], blocked: int, storage: Any) -> None:
        """A storage that is copied from `blocked` bytes, which are computed of `copies`: all of them are temporary."""
        self.settle()
        inner = [self._device.fake_allocate(size, self.stream()) for size in (*copies, blocked)]
        for block in inner[:-1]:
            self._free(block)
        self.see(storage)
        self._free(inner[-1])

    def keep(self, size: int) -> None:
        """Bytes that a library takes for good."""
        self.settle()
        self._device.fake_allocate(size, self.stream())

    def resize(self, storage: Any, resize: Any) -> None:
        """A storage that takes other memory (FSDP's do, to 0 bytes and back). New memory comes before the old goes."""
        self.settle()
        key = storage._cdata
        before = self._blocks.pop(key, None)
        resize()
        if key in self._alive:
            self._allocate(key, storage.nbytes())
        self._free(before)

    def record_stream(self, storage: Any, stream: int) -> None:
        """Another stream uses it, too."""
        block = self.address(storage)
        if block:
            self._device.fake_record_stream(block, stream)

    def address(self, storage: Any) -> int:
        """The size of the block; 0: there is none."""
        self.settle()
        return self._blocks.get(storage._cdata, 0)

    # Note [Sums of gradients]: where two gradients of one tensor meet, torch's engine adds into the first if it is an
    # ordinary tensor that nothing else holds. Fake ones are none, so a third is made, and the first dies at once. Where
    # it does, before anything else is made, the sum has the first one's block, as in a real run. What dies meanwhile
    # (the second one) is freed after that is known.
    def settle(self) -> None:
        """A sum whose left operand has not died at once is a block of its own."""
        if self._sum is not None:
            (key, _, size), self._sum = self._sum, None
            self._allocate(key, size)
            self._free_dead()

    def _die(self, key: int) -> None:
        self._alive.pop(key, None)
        if self._sum is not None and self._sum[1] == key:
            self._blocks[self._sum[0]] = self._blocks.pop(key)
            self._sum = None
            self._free_dead()
            return
        if self._sum is not None and self._sum[0] != key:
            self._dead += [self._blocks.pop(key, None)]
            return
        self.settle()
        self._free(self._blocks.pop(key, None))

    def _free_dead(self) -> None:
        dead, self._dead = self._dead, []
        for block in dead:
            self._free(block)

    def _free(self, block: Optional[int]) -> None:
        if block is not None:
            self._device.fake_free(block)

    def _allocate(self, key: int, size: int) -> None:
        block = self._device.fake_allocate(size, self.stream())
        if block:
            self.were = True
            self._blocks[key] = block
