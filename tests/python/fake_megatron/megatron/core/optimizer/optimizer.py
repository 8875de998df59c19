import torch


class MegatronOptimizer:
    def __init__(self):
        self.optimizer = torch.optim.Optimizer()
        self.config = None
        self.init_state_fn = lambda optimizer, config: None


class MixedPrecisionOptimizer(MegatronOptimizer):
    def step(self):
        self.optimizer.step()
        return True, 1.0, None


class Float16OptimizerWithFloat16Params(MixedPrecisionOptimizer):
    def sharded_state_dict(self, model_sharded_state_dict, is_loading=False, metadata=None):
        return {}


class FP32Optimizer(MegatronOptimizer):
    def step(self):
        self.optimizer.step()
        return True, 1.0, None

    def sharded_state_dict(self, model_sharded_state_dict, is_loading=False, metadata=None):
        return {}


class ChainedOptimizer(MegatronOptimizer):
    def sharded_state_dict(self, model_sharded_state_dict, is_loading=False, **kwargs):
        return [one.sharded_state_dict(model_sharded_state_dict, is_loading) for one in self.chained_optimizers]

    def __init__(self, chained_optimizers):
        self.chained_optimizers = chained_optimizers

    def step(self):
        for optimizer in self.chained_optimizers:
            optimizer.step()
        return True, 1.0, None
