"""One of torch's optimizers."""

from torch.optim.optimizer import Optimizer


class Adam(Optimizer):
    def _init_group(self) -> None:
        """Makes the state."""

    def step(self) -> None:
        self._init_group()
        super().step()
