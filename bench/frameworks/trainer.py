"""Trains a Llama with Hugging Face's Trainer: batches padded to their longest row, evaluations, a
checkpoint in the middle.

For bench/run.py; the model is made from its configuration, texts are drawn. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import tempfile
import time
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import transformers
from torch.utils.data import Dataset

VOCABULARY = 32000
SIZES: dict[str, dict[str, Any]] = {
    "full": {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 12}
    | {"num_key_value_heads": 4},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--batch", type=int, default=4, help="rows of a micro-batch")
    parser.add_argument("--longest", type=int, default=2048, help="tokens of a row, at most")
    return parser.parse_args()


class Texts(Dataset[dict[str, Any]]):
    """Rows of any length from an eighth of the longest on; the same in every process."""

    def __init__(self, rows: int, longest: int, seed: int) -> None:
        lengths = random.Random(seed)
        self.lengths = [lengths.randint(longest // 8, longest) for _ in range(rows)]
        self.seed = seed

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.seed + row)
        return {"input_ids": torch.randint(0, VOCABULARY, (self.lengths[row],), generator=generator)}


def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    tokens = [row["input_ids"] for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
    return {"input_ids": padded, "attention_mask": mask, "labels": padded.masked_fill(mask == 0, -100)}


class Watch(transformers.TrainerCallback):
    """Losses and milliseconds of the steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.ms: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begin = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ms.append(1e3 * (time.perf_counter() - self.begin))

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        self.losses += [value for name, value in logs.items() if name in ("loss", "eval_loss")]


def digest(model: torch.nn.Module) -> str:
    sha = hashlib.sha256()
    for weight in model.parameters():
        sha.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def main() -> None:
    arguments = parse_arguments()
    torch.use_deterministic_algorithms(True)
    transformers.set_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=arguments.longest, use_cache=False, **SIZES[arguments.size]
    )
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="trainer-") as directory:
        trainer = transformers.Trainer(
            model=transformers.AutoModelForCausalLM.from_config(config),
            args=transformers.TrainingArguments(
                output_dir=directory,
                max_steps=arguments.steps,
                per_device_train_batch_size=arguments.batch,
                per_device_eval_batch_size=arguments.batch,
                gradient_accumulation_steps=2,
                bf16=torch.cuda.is_available(),
                eval_strategy="steps",
                eval_steps=6,
                save_steps=max(arguments.steps // 2, 1),
                save_total_limit=1,
                logging_steps=1,
                report_to=[],
                disable_tqdm=True,
                dataloader_num_workers=2,
                dataloader_pin_memory=torch.cuda.is_available(),
            ),
            train_dataset=Texts(4 * arguments.batch * arguments.steps, arguments.longest, 100),
            eval_dataset=Texts(3 * arguments.batch, arguments.longest, 90000),
            data_collator=pad,
            callbacks=[watch],
        )
        trainer.train()
    print("RESULT " + json.dumps({"losses": watch.losses, "ms": watch.ms, "weights": digest(trainer.model)}))


if __name__ == "__main__":
    main()
