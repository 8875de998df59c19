"""Marks for a training loop of one's own, with or without DDP or FSDP around the model.

    stalloc.frameworks.loop.mark_model(model)        # the outermost module, once it is wrapped (and compiled in place)

Its forward passes are F. A backward pass begins when the gradient of a forward pass's output is there, so the loss's
own belongs to F. In evaluation (`model.eval()`, or under `torch.no_grad()`) a call is fenced. Iterations end with the
optimizer's step, as they do without this.
"""

from __future__ import annotations

from stalloc.train.frameworks.loop import mark_model

__all__ = ["mark_model"]
