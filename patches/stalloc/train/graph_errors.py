"""Launches of CUDA graphs that stalloc refuses: the exception says why, and what to do.

CUDA's own words for the error say neither. PyTorch's hooks around launches swallow errors, so its method is replaced.
"""

from __future__ import annotations

import functools
from typing import Any

from stalloc.core.library import Library


def install(torch: Any, library: Library) -> None:
    """Replaces torch.cuda.CUDAGraph.replay where launches may be refused."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None or not library.follows_graphs():
        return
    original = graph.replay

    @functools.wraps(original)
    def replay(self: Any) -> Any:
        try:
            return original(self)
        except RuntimeError as error:
            if refusal := library.graph_error():
                raise RuntimeError(refusal) from error
            raise

    graph.replay = replay
