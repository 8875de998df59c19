"""Training that is saved and resumed as Megatron does it: state is made first, read into, and put together anew.

python resumed_training.py --iterations N [--save FILE --save-at I | --load FILE] --json RESULT
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import stalloc.megatron
from stalloc.train.megatron import loading

import torch  # isort: skip

WIDTH, LAYERS, ROWS = 256, 6, 256  # an activation is as large as a matrix
STATE = loading.LoadedState()


class Optimizer:
    """What Megatron wraps around one of torch's."""

    config = None

    def __init__(self, model: torch.nn.Module) -> None:
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}])

    def init_state_fn(self, optimizer: Any, config: Any) -> None:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if not optimizer.state[parameter]:
                for name in ("exp_avg", "exp_avg_sq"):
                    optimizer.state[parameter][name] = torch.zeros_like(parameter)

    def sharded_state_dict(self, is_loading: bool = False) -> dict[str, Any]:
        if is_loading:
            self.init_state_fn(self.optimizer, self.config)
        return self.optimizer.state_dict()


def load(path: Path, model: torch.nn.Module, optimizer: Optimizer) -> int:
    made, saved = optimizer.sharded_state_dict(is_loading=True), torch.load(path)
    model.load_state_dict(saved["model"])
    for number, values in saved["optimizer"]["state"].items():
        for name, value in values.items():
            target = made["state"][number].get(name)
            if target is None or target.dim() == 1:
                made["state"][number][name] = value if target is None else target.copy_(value)
            else:  # both halves are read on their own
                halves = [half.copy_(read) for half, read in zip(target.chunk(2), value.chunk(2))]
                made["state"][number][name] = torch.cat(halves)
    optimizer.optimizer.load_state_dict(made)
    return int(saved["iteration"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--save-at", type=int)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    chosen = parser.parse_args()
    torch.manual_seed(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)) for _ in range(LAYERS)]
    model, losses, first = torch.nn.Sequential(*layers), [], 0
    Optimizer.sharded_state_dict = loading.optimizer_state(Optimizer.sharded_state_dict, STATE)  # type: ignore
    optimizer = Optimizer(model)
    if chosen.load:
        first = loading.loading(load, STATE)(chosen.load, model, optimizer)
    around_first = [stalloc.stats()]
    for number in range(first, chosen.iterations):
        with stalloc.iteration(number):
            rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(number))
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.optimizer.step()
            optimizer.optimizer.zero_grad()
        losses.append(loss.item())
        if number == first:
            around_first.append(stalloc.stats())
        if number + 1 == chosen.save_at:
            with stalloc.fence("save"):
                state = {"model": model.state_dict(), "optimizer": optimizer.optimizer.state_dict()}
                torch.save({**state, "iteration": number + 1}, chosen.save)
    figures = {"figures": stalloc.stats(), "around_first": around_first}
    chosen.json.write_text(json.dumps({"losses": losses, **figures}))


if __name__ == "__main__":
    main()
