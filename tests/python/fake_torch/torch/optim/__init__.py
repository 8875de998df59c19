from torch.optim.adam import Adam as Adam
from torch.optim.optimizer import Optimizer as Optimizer
