"""Scripts on a fake Megatron that has the real one's names, signatures and imports, per version."""

from __future__ import annotations

from mark_lines import readable
from processes import HERE, FakeProcess, Finished

VERSIONS = ["0.17.1", "0.18.2", "0.19.2", "0.20.0"]

# A model chunk is a list of layers. The script starts like a pretrain script does: with from-imports.
SCRIPT = """
import os
from megatron.training import pretrain
from megatron.core.tensor import Tensor
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.optimizer.optimizer import ChainedOptimizer, Float16OptimizerWithFloat16Params, FP32Optimizer

def forward_step(data_iterator, model):
    output = Tensor()
    for layer in model:
        output, _ = layer.forward(output)
    return output

DENSE, MOE, PIPELINE = [[]], [[MoELayer(3)]], [[], []]
optimizer = ChainedOptimizer([Float16OptimizerWithFloat16Params(), FP32Optimizer()])
"""


class Megatron:
    """Runs scripts on the fake Megatron."""

    def __init__(self, fake: FakeProcess) -> None:
        self.fake = fake
        fake.environment["PYTHONPATH"] += f":{HERE / 'fake_megatron'}"

    def run(self, body: str, *arguments: str, head: str = "", **environment: str) -> Finished:
        script = self.fake.directory / "pretrain.py"
        script.write_text(head + SCRIPT + body)
        variables = {"STALLOC_MODE": "Trace", **environment}
        return self.fake.python("-m", "stalloc", "run", str(script), *arguments, **variables).good()

    def marks(self, ends: bool = False) -> list[str]:
        return readable(self.fake.calls(), ends)
