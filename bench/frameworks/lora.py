"""Trains LoRA adapters of a frozen Llama with peft: layers recomputed, micro-batches padded to their longest row.

For bench/run.py; the model is made from its configuration, texts are drawn. A plain loop without marks. Prints one
line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import peft
import torch
import transformers
from trainer import SIZES, VOCABULARY, digest, pad


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--batch", type=int, default=8, help="rows of a micro-batch")
    parser.add_argument("--longest", type=int, default=3072, help="tokens of a row, at most")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.use_deterministic_algorithms(True)
    transformers.set_seed(7)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=arguments.longest, use_cache=False, **SIZES[arguments.size]
    )
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=targets))
    model.train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    lengths, generator = random.Random(5), torch.Generator().manual_seed(5)
    losses, ms = [], []
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        total = 0.0
        for _ in range(2):
            rows = [lengths.randint(arguments.longest // 24, arguments.longest) for _ in range(arguments.batch)]
            drawn = [{"input_ids": torch.randint(0, VOCABULARY, (row,), generator=generator)} for row in rows]
            loss = model(**{name: tensor.to(device) for name, tensor in pad(drawn).items()}).loss / 2
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
        ms.append(1e3 * (time.perf_counter() - begin))
    print("RESULT " + json.dumps({"losses": losses, "ms": ms, "weights": digest(model)}))


if __name__ == "__main__":
    main()
