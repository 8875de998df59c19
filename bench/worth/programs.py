"""The training programs whose memory is worth something, each at real sizes and at a toy's, with the same knobs.

A program makes its model, is changed (stalloc.apply), prepares, and then makes steps. A step has the same rows whatever
the micro-batch (rows.py), as often as it takes to have them all. `rollout` and `long` have one micro-batch a step: of
answers, and of units of one sequence's length, so that the same search finds the longest.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from models import Decoder, Shape
from rows import ROWS, Rows
from torch import Tensor, nn
from torch.utils.data import IterableDataset

import stalloc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workload import Gpt, MasterWeightAdamW, WorkloadConfig


@dataclasses.dataclass(frozen=True)
class Options:
    """Knobs of one run. `seed` draws data. `share`: of all lengths, for a trace: two micro-batches a step, each of rows
    of one length; 0: the run's own rows."""

    size: str = "real"
    micro_batch: int = 1
    seed: int = 7
    share: float = 0.0
    graphs: bool = False  # captured, where the program can


class Program:
    """What the others fill in."""

    name = ""  # in ROWS, where its steps have rows
    gpus = 1

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
        self.optimizer = torch.optim.AdamW(trained, 1e-4, fused=self.device.type == "cuda")

    @property
    def rows(self) -> Rows:
        return ROWS[self.name][self.options.size]

    def micro_batches(self, step: int) -> list[list[int]]:
        """Lengths of the rows of each micro-batch of a step."""
        if self.options.share:
            return self.rows.alike(step, self.options.micro_batch, self.options.share)
        return self.rows.micro_batches(step, self.options.micro_batch)

    def step(self, number: int) -> int:
        """One optimizer step; how many tokens it has trained on, without padding."""
        micro_batches = self.micro_batches(number)
        rows = sum(map(len, micro_batches))
        for lengths in micro_batches:
            stalloc.microbatch("F")
            stalloc.tokens(self.rows.tokens(lengths))
            loss = self.loss(lengths) * (len(lengths) / rows)
            stalloc.microbatch("B")
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return sum(map(sum, micro_batches))

    def loss(self, lengths: list[int]) -> Tensor:
        """Of a micro-batch with rows of so many tokens."""
        raise NotImplementedError

    def run(self, steps: int, before: Callable[[], None], after: Callable[[int], None]) -> None:
        """All steps; `before` each, and `after` it with its tokens."""
        for step in range(steps):
            stalloc.iteration(step)
            before()
            after(self.step(step))

    @property
    def toy(self) -> bool:
        return self.options.size == "toy"

    def built(self, shape: Shape, dtype: torch.dtype) -> Decoder:
        """In its type at once: a copy in another would be the most that is ever there."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with self.device:
                return Decoder(shape)
        finally:
            torch.set_default_dtype(before)

    def drawn(self, rows: int, length: int, vocabulary: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.draw.getrandbits(31))
        return torch.randint(0, vocabulary, (rows, length + 1), generator=generator).to(self.device)


class FsdpPacked(Program):
    """FSDP2 over a model of 6.7 billion parameters, mixed precision, a compiled block at a time; the rows of a
    micro-batch are packed into one sequence without padding."""

    name = "fsdp2-packed"
    gpus = 2

    def make(self) -> nn.Module:
        self.shape = Shape(2, 64, 4, 4, 128, 500) if self.toy else Shape(32, 4096, 32, 32, 11008, 32000)
        model = self.built(self.shape, torch.float32)
        if not self.toy:
            for block in model.blocks:
                # Not block.compile(): what stalloc.apply recomputes is the compiled function as a whole. So all blocks,
                # recomputed or not, have one graph.
                block.forward = torch.compile(block.forward, dynamic=True)
        return model

    def prepare(self) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in self.model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        gc.collect()  # unsharded weights may be left in cycles: as much as all shards of a rank twice
        super().prepare()

    def loss(self, lengths: list[int]) -> Tensor:
        tokens = self.drawn(1, sum(lengths), self.shape.vocabulary)
        found: Tensor = self.model(tokens[:, :-1], tokens[:, 1:])
        return found


class Lora(Program):
    """Llama 3 8B's shapes, frozen in bfloat16, LoRA in every matrix; rows padded to the longest of a micro-batch."""

    name = "lora"

    def make(self) -> nn.Module:
        real = Shape(32, 4096, 32, 8, 14336, 128256, lora_rank=16)
        self.shape = Shape(2, 64, 4, 2, 128, 500, lora_rank=4) if self.toy else real
        return self.built(self.shape, torch.bfloat16)

    def loss(self, lengths: list[int]) -> Tensor:
        tokens = self.drawn(len(lengths), max(lengths), self.shape.vocabulary)
        labels = tokens[:, 1:].clone()
        for row, length in enumerate(lengths):
            labels[row, length:] = -100
        found: Tensor = self.model(tokens[:, :-1], labels)
        return found


class Captured(Program):
    """Rows of one length through 64 experts a layer whose capacity is fixed: with `graphs` a micro-batch, forward and
    backward, is one CUDA graph."""

    name = "captured"

    def make(self) -> nn.Module:
        real = Shape(28, 1024, 8, 8, 1024, 32000, experts=64)
        self.shape = Shape(2, 64, 4, 2, 128, 500, experts=4) if self.toy else real
        return self.built(self.shape, torch.float32 if self.toy else torch.bfloat16)

    def prepare(self) -> None:
        super().prepare()
        for weight in self.model.parameters():  # gradients keep their addresses, as graphs need it
            weight.grad = torch.zeros_like(weight)
        rows, length = self.options.micro_batch, self.micro_batches(0)[0][0]
        self.tokens = torch.zeros(rows, length + 1, dtype=torch.long, device=self.device)
        self.micro_batch: Callable[[], object] = self._pass
        if self.options.graphs and self.device.type == "cuda":
            self.micro_batch = self._captured()

    def _pass(self) -> None:
        stalloc.microbatch("F")
        loss = self.model(self.tokens[:, :-1], self.tokens[:, 1:]) / len(self.micro_batches(0))
        stalloc.microbatch("B")
        loss.backward()

    def _captured(self) -> Callable[[], object]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._pass()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._pass()
        self.optimizer.zero_grad(set_to_none=False)
        return self.graph.replay

    def step(self, number: int) -> int:
        micro_batches = self.micro_batches(number)
        for lengths in micro_batches:
            stalloc.tokens(self.rows.tokens(lengths))
            self.tokens.copy_(self.drawn(len(lengths), lengths[0], self.shape.vocabulary))
            self.micro_batch()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return sum(map(sum, micro_batches))


class Experts(Program):
    """bench/workload.py's moe-16x12: dropless experts, with a fused optimizer."""

    name = "experts"

    def make(self) -> nn.Module:
        real = WorkloadConfig(12, 2048, 16, 2816, 32000, 512, experts=16, dtype="bfloat16")
        self.config = WorkloadConfig(2, 64, 4, 96, 500, 64, experts=4) if self.toy else real
        return Gpt(self.config, self.device)

    def prepare(self) -> None:
        self.optimizer = FusedMasterWeights(self.model, 1e-4, self.device)

    def loss(self, lengths: list[int]) -> Tensor:
        found: Tensor = self.model(self.drawn(len(lengths), lengths[0], self.config.vocab))
        return found


class FusedMasterWeights(MasterWeightAdamW):
    """What is not fused has temporaries as large as the weights, and they would be the peak."""

    def __init__(self, model: nn.Module, learning_rate: float, device: torch.device) -> None:
        super().__init__(model, learning_rate)
        self.adamw = torch.optim.AdamW(self.masters, lr=learning_rate, fused=device.type == "cuda")

    def zero_grad(self) -> None:
        """A step leaves no gradients."""


class Rollout(Program):
    """A policy writes answers over a growing cache, then trains on them, in one process."""

    def make(self) -> nn.Module:
        real = Shape(24, 2048, 16, 8, 5632, 32000)
        self.shape = Shape(2, 64, 4, 2, 128, 500) if self.toy else real
        return self.built(self.shape, torch.float32 if self.toy else torch.bfloat16)

    def step(self, number: int) -> int:
        prompt, answer = (8, 8) if self.toy else (512, 64)
        rows = self.options.micro_batch
        draw = random.Random(self.options.seed * 100003 + number)
        length = draw.randint(prompt // 2, prompt) if number >= 2 else prompt  # as rows.py has it
        stalloc.tokens(rows * (length + answer))
        stalloc.microbatch("O")
        written = self.model(self.drawn(rows, length - 1, self.shape.vocabulary), count=answer)
        stalloc.microbatch("F")
        loss = self.model(written[:, :-1], written[:, 1:])
        stalloc.microbatch("B")
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return int(written.numel())


class LongContext(Program):
    """One sequence through a model of Llama 3.2 1B's shapes; a micro-batch of N is one of N units of its length."""

    unit = 256

    def make(self) -> nn.Module:
        real = Shape(16, 2048, 32, 8, 8192, 128256)
        self.shape = Shape(2, 64, 4, 2, 128, 500) if self.toy else real
        return self.built(self.shape, torch.float32 if self.toy else torch.bfloat16)

    def step(self, number: int) -> int:
        length = self.options.micro_batch * (16 if self.toy else self.unit)
        stalloc.tokens(length)
        stalloc.microbatch("F")
        tokens = self.drawn(1, length, self.shape.vocabulary)
        loss = self.model(tokens[:, :-1], tokens[:, 1:])
        stalloc.microbatch("B")
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return length


class HuggingFace(Program):
    """transformers' Trainer on a Llama of Llama 3.2 3B's shapes: rows in any order are padded to the longest of a
    micro-batch, an evaluation every fourth step."""

    name = "trainer"

    def make(self) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        real = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24}
        toy = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        self.vocabulary = 500 if self.toy else 128256
        config = LlamaConfig(
            vocab_size=self.vocabulary,
            num_key_value_heads=4 if self.toy else 8,
            max_position_embeddings=self.rows.most,
            tie_word_embeddings=True,
            use_cache=False,
            **(toy if self.toy else real),
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32 if self.toy else torch.bfloat16)
        try:
            with self.device:
                return LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)

    def prepare(self) -> None:
        """The Trainer makes its optimizer itself, and stalloc's patch of it reports tokens."""

    def run(self, steps: int, before: Callable[[], None], after: Callable[[int], None]) -> None:
        from transformers import Trainer, TrainerCallback, TrainingArguments

        lengths = [self.micro_batches(step) for step in range(steps)]
        counts = [sum(map(sum, each)) for each in lengths]

        class Progress(TrainerCallback):
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                before()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                after(counts.pop(0))

        def collate(rows: list[Tensor]) -> dict[str, Tensor]:
            # Padding lies after a causal row and has no label, so that no mask is needed; with one, attention
            # runs in another kernel wherever there is padding, and a micro-batch of one row has none.
            padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            labels = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
            return {"input_ids": padded, "labels": labels}

        batch = self.options.micro_batch
        with tempfile.TemporaryDirectory() as directory:
            settings = TrainingArguments(
                directory,
                max_steps=steps,
                per_device_train_batch_size=batch,
                per_device_eval_batch_size=batch,
                gradient_accumulation_steps=len(lengths[0]),
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
            rows = InOrder(self._rows([row for step in lengths for micro_batch in step for row in micro_batch]))
            held_out = self._rows(lengths[0][0])
            Trainer(self.model, settings, collate, rows, held_out, callbacks=[Progress()]).train()

    def _rows(self, lengths: list[int]) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.options.seed)
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
    "captured": Captured,
    "rollout": Rollout,
    "long": LongContext,
}
