from torch.optim.optimizer import Optimizer as Optimizer
from torch.optim.adam import Adam as Adam
