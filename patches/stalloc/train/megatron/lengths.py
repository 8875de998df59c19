"""The lengths of micro-batches, for `stalloc plan --max-tokens`, from the inputs of Megatron's model."""

from __future__ import annotations

from typing import Any

from stalloc.train import api
from stalloc.train.megatron.loop import Loop
from stalloc.train.patching import Function, argument


def model(original: Function, loop: Loop) -> Function:
    """GPTModel.forward. A rank of several model chunks counts a micro-batch once, in the first of them."""
    identifiers_of = argument(original, "input_ids")

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if loop.marks and not getattr(self, "vp_stage", None):
            count = _tokens(self, identifiers_of((self, *args), kwargs))
            if count > 0:
                api.tokens(count)
        return original(self, *args, **kwargs)

    return forward


def _tokens(chunk: Any, identifiers: Any) -> int:
    """The tokens of the whole micro-batch, from shapes: nothing is waited for. 0: unknown.

    A later pipeline stage has what the one before sent: sequence x batch x hidden. Of the sequence a rank has its
    part under context parallelism, and of what is sent under sequence parallelism.
    """
    parts = getattr(chunk.config, "context_parallel_size", 1)
    if identifiers is not None:
        return int(identifiers.numel() * parts)
    hidden = getattr(getattr(chunk, "decoder", None), "input_tensor", None)
    if hidden is None:
        return 0
    if getattr(chunk.config, "sequence_parallel", False):
        parts *= chunk.config.tensor_model_parallel_size
    return int(hidden.shape[0] * hidden.shape[1] * parts)
