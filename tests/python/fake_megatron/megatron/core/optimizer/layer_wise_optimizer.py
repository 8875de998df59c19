from megatron.core.optimizer.optimizer import ChainedOptimizer
from megatron.core.package_info import before


class LayerWiseDistributedOptimizer(ChainedOptimizer):
    if before(0, 18):

        def step(self):
            return super().step()
