"""Trains a model as `stalloc fit` traces it, or several one after the other with what it chose.

fitted_training.py FAMILY MICRO_BATCH ITERATIONS      traced as it is
fitted_training.py --each FILE                        a JSON list: family, micro_batch, accumulation, fit,
                                                      iterations (2); prints the shortest step of each
Families are those of promised_models.py, and: gpt (bench/workload.py), llama (transformers), llama-alike
(llama_alike.py), sleeping (layers whose forward passes take 100 ms whatever the machine does).
"""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

import promised_models
import torch

import stalloc

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
MARKED = 2  # iterations of each change
SLEEP = 0.1


class Sleeping(torch.nn.Module):
    """Each of its layers keeps one tensor more than it gives on."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(SLEEP)
            return (x * self.weight).sin() + x

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Sleeping.Layer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def make(family: str, micro_batch: int) -> tuple[torch.nn.Module, Callable[[torch.nn.Module], Any]]:
    """The model, and what gives its loss."""
    if family == "gpt":
        import workload

        config = dataclasses.replace(workload.PRESETS["toy"], micro_batch=micro_batch, sequence=64, hidden=64)
        batches = workload.token_batches(config, 1, torch.device("cpu"))
        return workload.Gpt(config, torch.device("cpu")), lambda model: model(next(batches))
    if family == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "num_attention_heads": 4}
        ids = torch.randint(0, 500, (micro_batch, 64))
        model = LlamaForCausalLM(LlamaConfig(vocab_size=500, num_key_value_heads=2, **sizes))
        return model, lambda model: model(input_ids=ids, labels=ids).loss
    if family == "llama-alike":
        import llama_alike

        ids = torch.randint(0, 500, (micro_batch, 64))
        return llama_alike.LlamaForCausalLM(), lambda model: model(ids)[0]
    if family == "sleeping":
        x = torch.ones(micro_batch, 256, 256)
        return Sleeping(), lambda model: model(x)
    model, batch = promised_models.make(family, micro_batch)
    return model, lambda model: model(*batch)


def train(entry: dict[str, Any], iterations: int, begins: Callable[[], object]) -> list[float]:
    """Seconds of each step."""
    torch.manual_seed(1)
    model, loss_of = make(entry["family"], entry["micro_batch"])
    if entry.get("fit"):
        stalloc.apply(entry["fit"], model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    accumulation: Optional[int] = entry.get("accumulation", 1)
    seconds = []
    for _ in range(iterations):
        begins()
        begin = time.perf_counter()
        for _ in range(accumulation or 1):
            (loss_of(model) / (accumulation or 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    return seconds


if sys.argv[1] == "--each":
    for each in json.loads(Path(sys.argv[2]).read_text()):
        print(min(train(each, each.get("iterations", MARKED), stalloc.iteration)))
        gc.collect()
        stalloc.iteration()  # of its own: what the next one begins with
else:
    family, micro_batch, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    train({"family": family, "micro_batch": micro_batch}, iterations, lambda: None)
