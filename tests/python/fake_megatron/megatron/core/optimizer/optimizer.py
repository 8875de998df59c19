import torch


class MegatronOptimizer:
    def __init__(self):
        self.optimizer = torch.optim.Optimizer()


class MixedPrecisionOptimizer(MegatronOptimizer):
    def step(self):
        self.optimizer.step()
        return True, 1.0, None


class FP32Optimizer(MegatronOptimizer):
    def step(self):
        self.optimizer.step()
        return True, 1.0, None


class ChainedOptimizer(MegatronOptimizer):
    def __init__(self, chained_optimizers):
        self.chained_optimizers = chained_optimizers

    def step(self):
        for optimizer in self.chained_optimizers:
            optimizer.step()
        return True, 1.0, None
