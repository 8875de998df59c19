"""How long the rows of a run are: drawn for each step by its number, whatever the micro-batch. Needs no torch.

The first two steps have the same rows, the first and the last of them the longest that there can be, so that what is
too large fails at once: with gradients of other micro-batches there and without, and in the second step with the
optimizer's state.
"""

from __future__ import annotations

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Rows:
    """Tokens of rows, from `least` to `most`; `count` in a step, or so many micro-batches whatever their size.
    `packed`: those of a micro-batch lie one after the other."""

    least: int
    most: int
    count: int = 0
    accumulation: int = 0
    packed: bool = False
    seed: int = 7

    def step(self, number: int, size: int = 1) -> list[int]:
        """Of a step with micro-batches of `size`, in its order."""
        draw = random.Random(self.seed * 100003 + max(number, 1))
        lengths = [draw.randint(self.least, self.most) for _ in range(self.count or self.accumulation * size)]
        if number < 2:
            lengths[0] = lengths[-1] = self.most
        return lengths

    def micro_batches(self, number: int, size: int) -> list[list[int]]:
        """Of a step; the last one may have fewer rows."""
        lengths = self.step(number, size)
        return [lengths[i : i + size] for i in range(0, len(lengths), size)]

    def alike(self, number: int, size: int, share: float) -> list[list[int]]:
        """For a trace: `traced` micro-batches, each of rows of one length, the same lengths whatever the size. The
        longest in the first two steps; `share`: of all lengths."""
        draw = random.Random(self.seed * 100003 + number)
        lengths = [self.most if number < 2 else draw.randint(self.least, self.most) for _ in range(self.traced)]
        return [[max(1, round(length * share))] * size for length in lengths]

    @property
    def traced(self) -> int:
        """Micro-batches of a traced step."""
        return self.accumulation or 2

    def tokens(self, lengths: list[int]) -> int:
        """Of a micro-batch, padding included."""
        return sum(lengths) if self.packed else len(lengths) * max(lengths)


# Of programs whose steps have so many rows whatever their micro-batches; by size.
ROWS: dict[str, dict[str, Rows]] = {
    "fsdp2-packed": {"real": Rows(512, 2048, 12, packed=True), "toy": Rows(16, 64, 4, packed=True)},
    "lora": {"real": Rows(512, 12288, 4), "toy": Rows(8, 64, 4)},
    "trainer": {"real": Rows(512, 12288, 4), "toy": Rows(8, 64, 4)},
    "captured": {"real": Rows(1024, 1024, 48), "toy": Rows(16, 16, 4)},
    "experts": {"real": Rows(512, 512, accumulation=4), "toy": Rows(16, 16, accumulation=4)},
}
