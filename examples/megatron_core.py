"""A GPT of megatron-core with its own pipeline schedule, on one rank. Its passes mark themselves.

    stalloc run --auto examples/megatron_core.py

Megatron-LM's pretrain scripts need nothing either: `torchrun ... --no-python stalloc run --auto pretrain_gpt.py ...`
(docs/megatron.md).
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH, VOCABULARY = 128, 512


def make_model(layers: int, width: int, device: str) -> GPTModel:
    config = TransformerConfig(
        num_layers=layers,
        hidden_size=width,
        num_attention_heads=4,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
    )
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    config.normalization = "RMSNorm"
    return GPTModel(config, spec, VOCABULARY, LENGTH).to(device)


def batches(device: str) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randint(VOCABULARY, (4, LENGTH), generator=generator).to(device)


def forward_step(data: Iterator[torch.Tensor], model: GPTModel) -> Any:
    tokens = next(data)
    positions = torch.arange(LENGTH, device=tokens.device).expand(len(tokens), -1)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device=tokens.device), 1)
    losses = model(tokens, positions, mask, labels=tokens.roll(-1, 1))
    return losses, functools.partial(lambda found: (found.mean(), {"loss": found.detach().mean()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}.items():
        os.environ.setdefault(name, value)
    torch.distributed.init_process_group(backend="nccl" if on_gpu else "gloo")
    parallel_state.initialize_model_parallel()
    torch.manual_seed(1)
    model_parallel_cuda_manual_seed(1)
    model = make_model(options.layers, options.width, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data, schedule = batches(device), get_forward_backward_func()
    for step in range(options.steps):
        losses = schedule(
            forward_step_func=forward_step,
            data_iterator=data,
            model=model,
            num_microbatches=2,
            seq_length=LENGTH,
            micro_batch_size=4,
            forward_only=False,
        )
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 0:
            print(f"step {step}: loss {losses[0]['loss'].item():.4f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
