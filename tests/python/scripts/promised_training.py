"""Trains a model of promised_models.py as its user would, or, one after the other, models with changes.

promised_training.py FAMILY BATCH ITERATIONS       without any word of stalloc
promised_training.py --loop NAME ITERATIONS        a marked loop of promised_loops.py, with what it does badly
promised_training.py --changes FILE                a JSON list of what is trained, two marked iterations each:
    family, batch; change: Python that is run on `model` before; loss: Python for the loss from `head`, `hidden` and
    `labels`; optimizer: arguments of AdamW; offloaded: a pattern of layers whose activations go elsewhere;
    offloaded_state: the optimizer's does; or loop, and what is mended in it
"""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path
from typing import Any, Callable

import promised_loops
import promised_models
import torch
import torch.utils.checkpoint

MARKED = 2  # iterations of each change
NAMES = {"re": re, "torch": torch, "F": torch.nn.functional}


def loss_by(code: str, head: Any) -> Callable[[Any, Any], Any]:
    def loss(hidden: Any, labels: Any) -> Any:
        names = {**NAMES, "head": head, "hidden": hidden, "labels": labels}
        exec(code, names)
        return names["loss"]

    return loss


def train(entry: dict[str, Any], iterations: int, begins: Callable[[], object]) -> None:
    if "loop" in entry:
        promised_loops.LOOPS[entry["loop"]](entry.get("mended", ""), iterations, begins)
        return
    model, batch = promised_models.make(entry["family"], entry["batch"])
    if "change" in entry:
        import stalloc

        exec(entry["change"], {**NAMES, "model": model, "stalloc": stalloc})
    if "loss" in entry:
        model.loss = loss_by(entry["loss"], model.head)
    if "offloaded" in entry:
        promised_loops.offload(model, entry["offloaded"])
    optimizer = torch.optim.AdamW(model.parameters(), **{"foreach": True, **entry.get("optimizer", {})})
    if entry.get("offloaded_state"):
        promised_loops.offload_state(optimizer)
    for _ in range(iterations):
        begins()
        model(*batch).backward()
        optimizer.step()
        optimizer.zero_grad()


if sys.argv[1] == "--changes":
    import stalloc

    for each in json.loads(Path(sys.argv[2]).read_text()):
        train(each, MARKED, stalloc.iteration)
        gc.collect()
        stalloc.iteration()  # of its own: what the next one begins with
elif sys.argv[1] == "--loop":
    import stalloc

    train({"loop": sys.argv[2]}, int(sys.argv[3]), stalloc.iteration)
else:
    train({"family": sys.argv[1], "batch": int(sys.argv[2])}, int(sys.argv[3]), lambda: None)
