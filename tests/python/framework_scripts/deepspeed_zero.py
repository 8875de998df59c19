"""DeepSpeed's engine with ZeRO of stage $STAGE: accumulation, an evaluation in the middle."""

import os

os.environ.update(WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
os.environ["DS_ACCELERATOR"] = os.environ.get("DEVICE", "cpu")
import deepspeed
import torch
from outcome import DEVICE, Model, Tokens, leave
from torch.utils.data import DataLoader

torch.manual_seed(1)
model = Model().to(DEVICE)
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": int(os.environ["STAGE"])},
        "zero_allow_untested_optimizer": True,
    },
)
batches = iter(DataLoader(Tokens(), batch_size=2))
losses = []


def following():
    return {name: value.to(DEVICE) for name, value in next(batches).items()}


for step in range(int(os.environ["STEPS"])):
    for _ in range(2):
        loss = engine(**following())
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if step == 3:
        engine.eval()
        with torch.no_grad():
            losses.append(engine(**following()).item())
        engine.train()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    leave(losses, model)
