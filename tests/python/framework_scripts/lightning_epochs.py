"""Lightning's Trainer over epochs of a few batches, whose loader is made anew for each: losses of steps and of
validations, and what it says of its length."""

import json
import os

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

ROWS, BATCHES, EPOCHS = 1024, 4, 3
seed_everything(1, verbose=False)
data = TensorDataset(torch.randn(ROWS * BATCHES, 64), torch.randint(0, 8, (ROWS * BATCHES,)))
losses = []


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        blocks = [torch.nn.Sequential(torch.nn.Linear(64, 2048), torch.nn.Linear(2048, 64)) for _ in range(3)]
        self.model = torch.nn.Sequential(*blocks, torch.nn.Linear(64, 8))
        self.step = []

    def train_dataloader(self):
        return DataLoader(data, batch_size=ROWS)

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.step.append(loss.item())
        return loss

    def on_before_optimizer_step(self, optimizer):
        losses.append(sum(self.step) / len(self.step))
        self.step.clear()

    def validation_step(self, batch, _):
        losses.append(torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]).item())

    def configure_optimizers(self):
        losses.append(self.trainer.estimated_stepping_batches)
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


directory = os.environ["CHECKPOINTS"]
module = Module()
Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=EPOCHS,
    limit_train_batches=BATCHES,
    val_check_interval=2,
    reload_dataloaders_every_n_epochs=1,
    num_sanity_val_steps=0,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=directory,
    callbacks=[ModelCheckpoint(directory, every_n_train_steps=2, save_top_k=-1)],
).fit(module, val_dataloaders=DataLoader(data, batch_size=32, sampler=range(64)))
print(json.dumps(losses))
