from megatron.core.package_info import leave_out_missing
from megatron.core.tensor import Tensor


class Counts:
    """A tensor of two experts' tokens, on the CPU or not."""

    def __init__(self, counts, device):
        self.counts, self.device = counts, type("Device", (), {"type": device})

    def tolist(self):
        return self.counts


class Dispatcher:
    def __init__(self):
        self.dealt, self.device = 0, "cpu"

    def dispatch_postprocess(self, hidden, probs):
        self.dealt += 1
        return hidden, Counts([self.dealt, 10], self.device), probs


class MoELayer:
    def __init__(self, layer_number):
        self.layer_number = layer_number
        self.token_dispatcher = Dispatcher()

    def route(self, hidden):
        return hidden

    def dispatch(self, hidden, probs):
        return hidden, probs

    def routed_experts_compute(self, hidden, probs):
        hidden, _, _ = self.token_dispatcher.dispatch_postprocess(hidden, probs)
        return hidden, None

    def combine(self, hidden):
        return hidden

    def forward(self, hidden):
        hidden, probs = self.dispatch(self.route(hidden), None)
        hidden, _ = self.routed_experts_compute(hidden, probs)
        return Tensor(() if hidden is None else (self.combine(hidden),)), None


leave_out_missing(__name__, globals())
