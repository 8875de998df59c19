"""Lightning's Trainer: accumulation, validation in the middle."""

import os
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from outcome import DEVICE, Model, Tokens, leave
from torch.utils.data import DataLoader

seed_everything(1, verbose=False)
losses = []


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch, _):
        loss = self.model(**batch)
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, _):
        losses.append(self.model(**batch).item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


module = Module()
with tempfile.TemporaryDirectory() as directory:
    Trainer(
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        max_steps=int(os.environ["STEPS"]),
        accumulate_grad_batches=2,
        val_check_interval=8,
        num_sanity_val_steps=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
    ).fit(module, DataLoader(Tokens(), batch_size=2), DataLoader(Tokens(4), batch_size=2))
leave(losses, module)
