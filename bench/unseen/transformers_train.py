"""Trains a small model of Hugging Face's transformers, as its users write their loops: no marks, lengths and routing of
each batch drawn anew. To be replayed by replay.py, as train.py's workloads.

    STALLOC_DEVICE=cpu STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=traces/mixtral-eager-fixed-ckpt OMP_NUM_THREADS=1 \\
        stalloc run bench/unseen/transformers_train.py mixtral-eager-fixed-ckpt --iterations 16

NAME is a model, with options after dashes:

    eager, grouped   how experts run (default: the model's way); `eager` takes them one after the other
    fixed, sorted    all sequences of one length; of similar lengths within a micro-batch (default: of any length)
    ckpt             layers are recomputed
    acc1, acc8       micro-batches of a step (default 4)
    bf16             weights in bfloat16
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
import transformers
from named import parse_arguments

VOCABULARY, BATCH, LONGEST, SHORTEST, FIXED = 1000, 4, 384, 48, 256
_FILE = Path(__file__).resolve().parents[1] / "workloads" / "transformers.json"
MODELS: dict[str, dict[str, Any]] = json.loads(_FILE.read_text())  # the configuration's class and its arguments
_CLASSES = {"t5": "AutoModelForSeq2SeqLM", "bert": "AutoModelForMaskedLM"}
_WITHOUT_SDPA = ("gptoss", "mamba")
OPTIONS = ["eager", "grouped", "fixed", "sorted", "ckpt", "bf16"]


def make_model(name: str, options: list[str]) -> Any:
    config = getattr(transformers, MODELS[name]["config"])(**MODELS[name]["sizes"])
    model_class = getattr(transformers, _CLASSES.get(name, "AutoModelForCausalLM"))
    attention = "eager" if name in _WITHOUT_SDPA else "sdpa"
    model = model_class.from_config(config, attn_implementation=attention)
    if "eager" in options:
        model.set_experts_implementation("eager")
    if "grouped" in options:
        model.set_experts_implementation("grouped_mm")
    if "ckpt" in options:
        model.gradient_checkpointing_enable()
    return model.to(torch.bfloat16) if "bf16" in options else model


def draw_lengths(options: list[str]) -> list[int]:
    if "fixed" in options:
        return [FIXED] * BATCH
    if "sorted" in options:
        middle = random.randint(SHORTEST, LONGEST)
        return [min(LONGEST, max(SHORTEST, middle + random.randint(-16, 16))) for _ in range(BATCH)]
    return [random.randint(SHORTEST, LONGEST) for _ in range(BATCH)]


def draw_batch(name: str, options: list[str]) -> dict[str, Any]:
    """Padded to the longest; what is padded has no part in the loss."""
    lengths = draw_lengths(options)
    tokens = torch.randint(0, VOCABULARY, (BATCH, max(lengths)))
    mask = torch.zeros_like(tokens)
    for row, length in zip(mask, lengths):
        row[:length] = 1
    batch: dict[str, Any] = {"input_ids": tokens, "labels": tokens.masked_fill(mask == 0, -100)}
    if name != "mamba":
        batch["attention_mask"] = mask
    if name not in _CLASSES:
        batch["use_cache"] = False
    return batch


def main() -> None:
    arguments = parse_arguments(__doc__, MODELS, OPTIONS)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    model = make_model(arguments.kind, arguments.options)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for iteration in range(arguments.iterations):
        total = 0.0
        for _ in range(arguments.micro_batches):
            loss = model(**draw_batch(arguments.kind, arguments.options)).loss / arguments.micro_batches
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"iteration {iteration}: loss {total:.4f}", flush=True)


if __name__ == "__main__":
    main()
