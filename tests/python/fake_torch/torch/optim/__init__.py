from torch.optim.optimizer import Optimizer as Optimizer
