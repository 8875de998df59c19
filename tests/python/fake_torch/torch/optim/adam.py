"""One of torch's optimizers, and one as Apex and TransformerEngine have them."""

from torch.optim.optimizer import Optimizer


class Adam(Optimizer):
    def _init_group(self) -> None:
        """Makes the state."""

    def step(self) -> None:
        self._init_group()
        super().step()


class FusedAdam(Optimizer):
    """Makes its state in its first step, in no function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.state = {}

    def _update(self) -> None:
        self.state["parameter"] = {"exp_avg": 0}
