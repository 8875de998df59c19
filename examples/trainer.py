"""transformers' Trainer: it marks itself, nothing in the script knows of stalloc.

stalloc run --auto examples/trainer.py
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import transformers
from torch.utils.data import Dataset


class Tokens(Dataset):
    """Random ones; the labels are the inputs."""

    def __init__(self, vocabulary: int, length: int) -> None:
        self.rows = torch.randint(vocabulary, (512, length), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    options = parser.parse_args()
    transformers.set_seed(1)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=1024, n_positions=options.length, n_embd=options.width, n_layer=options.layers, n_head=4
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(
            directory,
            max_steps=options.steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            logging_steps=4,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=False,
        )
        transformers.Trainer(model, arguments, train_dataset=Tokens(1024, options.length)).train()


if __name__ == "__main__":
    main()
