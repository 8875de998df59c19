"""Lightning: it marks itself, nothing in the script knows of stalloc.

stalloc run --auto examples/lightning_fit.py
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Module(LightningModule):
    """A small encoder that copies its input."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.encoder(batch[0]), batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    seed_everything(1, verbose=False)
    data = DataLoader(TensorDataset(torch.randn(256, 64, options.width)), batch_size=8)
    with tempfile.TemporaryDirectory() as directory:
        Trainer(
            accelerator="auto",
            devices=1,
            max_steps=options.steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=directory,
        ).fit(Module(options.width, options.layers), data)


if __name__ == "__main__":
    main()
