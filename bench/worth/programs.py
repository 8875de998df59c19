"""The training programs whose memory is worth something, each at real sizes and at a toy's, with the same knobs.

A program makes its model, is changed (stalloc.apply), prepares, and then makes steps. The micro-batch is in sequences;
of `long` in units of its sequence's length, so that the same search finds the longest.
"""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from models import Decoder, Shape
from torch import Tensor, nn
from torch.utils.data import IterableDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workload import Gpt, MasterWeightAdamW, WorkloadConfig, token_batches


@dataclasses.dataclass(frozen=True)
class Options:
    """Knobs of one run. `seed` draws data; ranks of one run draw their own."""

    size: str = "real"
    micro_batch: int = 1
    seed: int = 7


class Program:
    """What the others fill in. `accumulation`: micro-batches of a step."""

    gpus = 1
    accumulation = 1
    unit = 0  # tokens of one micro-batch unit, where that is no sequence

    def __init__(self, options: Options, device: torch.device) -> None:
        self.options, self.device = options, device
        rank = int(os.environ.get("RANK", "0"))
        self.draw = random.Random(options.seed + rank)
        torch.manual_seed(options.seed)
        self.model = self.make()
        self.optimizer: Any = None

    def make(self) -> nn.Module:
        raise NotImplementedError

    def prepare(self) -> None:
        """Optimizer; compiles and shards. The model has been changed by now."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        fused = self.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(trained, 1e-4, fused=fused)

    def step(self) -> int:
        """One optimizer step; how many tokens it has trained on."""
        tokens = 0
        for _ in range(self.accumulation):
            count, loss = self.micro_step()
            (loss / self.accumulation).backward()
            tokens += count
        self.optimizer.step()
        self.optimizer.zero_grad()
        return tokens

    def micro_step(self) -> tuple[int, Tensor]:
        raise NotImplementedError

    def run(self, steps: int, before: Callable[[], None], after: Callable[[int], None]) -> None:
        """All steps; `before` each, and `after` it with its tokens."""
        import stalloc

        for step in range(steps):
            stalloc.iteration(step)
            before()
            after(self.step())

    @property
    def toy(self) -> bool:
        return self.options.size == "toy"

    def built(self, shape: Shape, dtype: torch.dtype) -> Decoder:
        with self.device:
            return Decoder(shape).to(dtype)

    def length(self, least: int, most: int) -> int:
        """Of a micro-batch's longest sequence: `most` first, then as drawn, whatever the micro-batch."""
        drawn = self.draw.randint(least, most)
        self.begun, first = True, not getattr(self, "begun", False)
        return most if first else drawn

    def lengths(self, least: int, most: int) -> list[int]:
        """Of a micro-batch's sequences; the longest is the first."""
        longest = self.length(least, most)
        others = random.Random(self.draw.getrandbits(31))
        return [longest, *(others.randint(least, longest) for _ in range(self.options.micro_batch - 1))]

    def drawn(self, length: int, vocabulary: int) -> Tensor:
        shape = (self.options.micro_batch, length + 1)
        generator = torch.Generator().manual_seed(self.draw.getrandbits(31))
        return torch.randint(0, vocabulary, shape, generator=generator).to(self.device)


class FsdpPacked(Program):
    """FSDP2, mixed precision, a compiled block at a time, packed batches of varying length, two accumulated."""

    gpus = 2
    accumulation = 2

    def make(self) -> nn.Module:
        self.shape = Shape(2, 64, 4, 4, 128, 500) if self.toy else Shape(16, 4096, 32, 32, 11008, 32000)
        return self.built(self.shape, torch.float32)

    def prepare(self) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in self.model.blocks:
            if not self.toy:
                block.compile(dynamic=True)
            fully_shard(block, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        super().prepare()

    def micro_step(self) -> tuple[int, Tensor]:
        least, most = (16, 64) if self.toy else (512, 2048)
        length = self.length(least, most) // 16 * 16
        tokens = self.drawn(length, self.shape.vocabulary)
        return tokens[:, 1:].numel(), self.model(tokens[:, :-1], tokens[:, 1:])


class Lora(Program):
    """Llama 3 8B's shapes, frozen in bfloat16, LoRA in every matrix; sequences padded to the longest of a batch."""

    def make(self) -> nn.Module:
        real = Shape(32, 4096, 32, 8, 14336, 128256, lora_rank=16)
        self.shape = Shape(2, 64, 4, 2, 128, 500, lora_rank=4) if self.toy else real
        return self.built(self.shape, torch.bfloat16)

    def micro_step(self) -> tuple[int, Tensor]:
        longest = 64 if self.toy else 2048
        lengths = self.lengths(longest // 16, longest)
        tokens = self.drawn(lengths[0], self.shape.vocabulary)
        labels = tokens[:, 1:].clone()
        for row, length in enumerate(lengths):
            labels[row, length:] = -100
        return sum(lengths), self.model(tokens[:, :-1], labels)


class Experts(Program):
    """bench/workload.py's moe-16x12: dropless experts, four micro-batches a step."""

    accumulation = 4

    def make(self) -> nn.Module:
        real = WorkloadConfig(12, 2048, 16, 2816, 32000, 2048, 4, 4, experts=16, dtype="bfloat16")
        toy = WorkloadConfig(2, 64, 4, 96, 500, 64, 4, 4, experts=4)
        self.config = dataclasses.replace(toy if self.toy else real, micro_batch=self.options.micro_batch)
        return Gpt(self.config, self.device)

    def prepare(self) -> None:
        self.optimizer = MasterWeightAdamW(self.model, 1e-4)
        self.batches = token_batches(self.config, self.options.seed, self.device)

    def step(self) -> int:
        tokens = 0
        for _ in range(self.accumulation):
            count, loss = self.micro_step()
            (loss / self.accumulation).backward()
            tokens += count
        self.optimizer.step()
        return tokens

    def micro_step(self) -> tuple[int, Tensor]:
        tokens = next(self.batches)
        return tokens[:, 1:].numel(), self.model(tokens)


class Rollout(Program):
    """A policy writes answers over a growing cache, then trains on them, in one process."""

    def make(self) -> nn.Module:
        real = Shape(24, 2048, 16, 8, 5632, 32000)
        self.shape = Shape(2, 64, 4, 2, 128, 500) if self.toy else real
        return self.built(self.shape, torch.float32 if self.toy else torch.bfloat16)

    def micro_step(self) -> tuple[int, Tensor]:
        prompt, answer = (8, 8) if self.toy else (512, 128)
        prompt = self.length(prompt // 2, prompt)
        written = self.model(self.drawn(prompt - 1, self.shape.vocabulary), count=answer)
        return written.numel(), self.model(written[:, :-1], written[:, 1:])


class LongContext(Program):
    """One sequence; a micro-batch of N is one of N units of its length."""

    unit = 1024

    def make(self) -> nn.Module:
        real = Shape(24, 2048, 16, 8, 5632, 32000)
        self.shape = Shape(2, 64, 4, 2, 128, 500) if self.toy else real
        return self.built(self.shape, torch.float32 if self.toy else torch.bfloat16)

    def micro_step(self) -> tuple[int, Tensor]:
        length = self.options.micro_batch * (16 if self.toy else self.unit)
        generator = torch.Generator().manual_seed(self.draw.getrandbits(31))
        tokens = torch.randint(0, self.shape.vocabulary, (1, length + 1), generator=generator).to(self.device)
        return length, self.model(tokens[:, :-1], tokens[:, 1:])


class HuggingFace(Program):
    """transformers' Trainer on a Llama of 1.1 billion parameters: padded to the longest of a batch, an evaluation every
    fourth step."""

    def make(self) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        real = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 16}
        toy = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        self.vocabulary = 500 if self.toy else 32000
        sizes = toy if self.toy else real
        config = LlamaConfig(vocab_size=self.vocabulary, num_key_value_heads=4, use_cache=False, **sizes)
        with self.device:
            return LlamaForCausalLM(config).to(torch.float32 if self.toy else torch.bfloat16)

    def prepare(self) -> None:
        """The Trainer makes its optimizer itself."""

    def run(self, steps: int, before: Callable[[], None], after: Callable[[int], None]) -> None:
        from transformers import Trainer, TrainerCallback, TrainingArguments

        counted: list[int] = []

        class Told(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                before()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                after(counted.pop(0))  # the next batch may be there already

        def collate(rows: list[Tensor]) -> dict[str, Tensor]:
            if self.model.training:
                counted.append(sum(map(len, rows)))
            padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
            return {"input_ids": padded, "attention_mask": mask, "labels": padded.masked_fill(mask == 0, -100)}

        batch = self.options.micro_batch
        with tempfile.TemporaryDirectory() as directory:
            settings = TrainingArguments(
                directory,
                max_steps=steps,
                per_device_train_batch_size=batch,
                per_device_eval_batch_size=batch,
                eval_strategy="steps",
                eval_steps=4,
                save_strategy="no",
                report_to=[],
                logging_steps=1 << 20,
                disable_tqdm=True,
                use_cpu=self.device.type == "cpu",
                dataloader_pin_memory=False,
                remove_unused_columns=False,
            )
            rows, held_out = InOrder(self._rows(steps + 1)), self._rows(1)
            Trainer(self.model, settings, collate, rows, held_out, callbacks=[Told()]).train()

    def _rows(self, batches: int) -> list[Tensor]:
        longest = 64 if self.toy else 2048
        generator = torch.Generator().manual_seed(self.options.seed)
        lengths = [length for _ in range(batches) for length in self.lengths(longest // 16, longest)]
        return [torch.randint(0, self.vocabulary, (length,), generator=generator) for length in lengths]


class InOrder(IterableDataset[Tensor]):
    """Rows as they come, which a Trainer does not shuffle."""

    def __init__(self, rows: list[Tensor]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.rows)


PROGRAMS: dict[str, Callable[[Options, torch.device], Program]] = {
    "fsdp2-packed": FsdpPacked,
    "lora": Lora,
    "trainer": HuggingFace,
    "experts": Experts,
    "rollout": Rollout,
    "long": LongContext,
}
