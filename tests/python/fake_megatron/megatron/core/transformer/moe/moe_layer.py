from megatron.core.package_info import leave_out_missing
from megatron.core.tensor import Tensor


class MoELayer:
    def __init__(self, layer_number):
        self.layer_number = layer_number

    def route(self, hidden):
        return hidden

    def dispatch(self, hidden, probs):
        return hidden, probs

    def routed_experts_compute(self, hidden, probs):
        return hidden, None

    def combine(self, hidden):
        return hidden

    def forward(self, hidden):
        hidden, probs = self.dispatch(self.route(hidden), None)
        hidden, _ = self.routed_experts_compute(hidden, probs)
        return Tensor(() if hidden is None else (self.combine(hidden),)), None


leave_out_missing(__name__, globals())
