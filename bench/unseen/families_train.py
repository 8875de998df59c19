"""Trains one of families.py's kinds of model in a plain loop without marks. To be replayed by replay.py, as train.py's.

    STALLOC_DEVICE=cpu STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=traces/graphs OMP_NUM_THREADS=1 \\
        stalloc run bench/unseen/families_train.py graphs --iterations 16

NAME is a family, with options after dashes:

    acc1, acc8       micro-batches of a step (default 4)
    lbfgs            L-BFGS with a line search, which takes a step's loss as often as it likes (default AdamW)
"""

from __future__ import annotations

import random

import torch
from families import FAMILIES
from named import parse_arguments
from torch import Tensor

OPTIONS = ["lbfgs"]


def main() -> None:
    arguments = parse_arguments(__doc__, FAMILIES, OPTIONS)
    torch.manual_seed(arguments.seed)
    model = FAMILIES[arguments.kind]()
    model.train()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if "lbfgs" in arguments.options:
        optimizer: torch.optim.Optimizer = torch.optim.LBFGS(parameters, max_iter=4, line_search_fn="strong_wolfe")
    else:
        optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def draw_anew(iteration: int) -> None:
        torch.manual_seed(1000 * arguments.seed + iteration)
        random.seed(1000 * arguments.seed + iteration)

    def total_loss() -> Tensor:
        draw_anew(iteration)  # a line search computes the same loss again
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros(())
        for _ in range(arguments.micro_batches):
            loss = model.loss() / arguments.micro_batches
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        return total

    for iteration in range(arguments.iterations):
        loss = optimizer.step(total_loss)
        print(f"iteration {iteration}: loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
