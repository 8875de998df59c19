"""Marks around the passes of micro-batches, whichever schedule runs them: 1F1B, interleaved, combined, hybrid, none."""

from __future__ import annotations

from typing import Any

from stalloc.train import api
from stalloc.train.megatron.loop import Loop
from stalloc.train.patching import Function, argument


def whole(original: Function, loop: Loop) -> Function:
    """forward_backward_*: fenced if it runs forward only.

    Megatron's own `evaluate` is fenced already; loops of one's own on megatron-core evaluate by this call alone.
    """

    def forward_backward(*args: Any, **kwargs: Any) -> Any:
        if not (kwargs.get("forward_only") and loop.marks):
            return original(*args, **kwargs)
        with loop.fence("eval"):
            return original(*args, **kwargs)

    return forward_backward


def forward(original: Function, loop: Loop) -> Function:
    """forward_step: F."""
    index_of, chunk_of = argument(original, "current_microbatch"), argument(original, "vp_stage")

    def forward_step(*args: Any, **kwargs: Any) -> Any:
        if not loop.marks:
            return original(*args, **kwargs)
        chunk, index = chunk_of(args, kwargs) or 0, index_of(args, kwargs)
        with api.microbatch("F", index, chunk):
            result = original(*args, **kwargs)
        loop.remember(result[0], (chunk, index))
        return result

    return forward_step


def backward(original: Function, loop: Loop) -> Function:
    """backward_step and its sibling for several modules: B."""
    output_of = argument(original, "output_tensor")

    def backward_step(*args: Any, **kwargs: Any) -> Any:
        if not loop.marks:
            return original(*args, **kwargs)
        chunk, index = loop.recall(output_of(args, kwargs))
        with api.microbatch("B", index, chunk):
            return original(*args, **kwargs)

    return backward_step


def combined(original: Function, loop: Loop) -> Function:
    """combined_forward_backward_step: F of one micro-batch merged with B of another, or either of them alone."""
    forward_model, backward_model = argument(original, "f_model"), argument(original, "b_model")
    index_of, chunk_of = argument(original, "current_microbatch"), argument(original, "f_model_chunk_id")
    output_of = argument(original, "b_output_tensor")

    def combined_forward_backward_step(*args: Any, **kwargs: Any) -> Any:
        if not loop.marks:
            return original(*args, **kwargs)
        forwards = forward_model(args, kwargs) is not None
        backwards = backward_model(args, kwargs) is not None
        place = chunk_of(args, kwargs) or 0, index_of(args, kwargs)
        ended = loop.recall(output_of(args, kwargs)) if backwards else place
        chunk, index = place if forwards else ended
        kind = ("F" if forwards else "") + ("B" if backwards else "")
        with api.microbatch(kind or "O", index, chunk):
            result = original(*args, **kwargs)
        if forwards:
            loop.remember(result[0], place)
        return result

    return combined_forward_backward_step


def weight_gradients(original: Function, loop: Loop) -> Function:
    """finish_embedding_wgrad_compute: W of the embedding, where it was deferred; else it does nothing."""
    config_of, last_of = argument(original, "config"), argument(original, "is_last_stage")

    def finish_embedding_wgrad_compute(*args: Any, **kwargs: Any) -> Any:
        deferred = getattr(config_of(args, kwargs), "defer_embedding_wgrad_compute", False)
        if not (loop.marks and deferred and last_of(args, kwargs) is not False):
            return original(*args, **kwargs)
        with api.microbatch("W"):
            return original(*args, **kwargs)

    return finish_embedding_wgrad_compute
