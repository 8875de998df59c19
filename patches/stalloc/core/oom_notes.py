"""Notes of a report of an out-of-memory error that are dropped if its trace adds what was not known."""

from __future__ import annotations

BY_PHASE = (
    "classes of blocks without a named tensor follow from the phase that requested them; of what is not in the present "
    "iteration any more they are other"
)
NO_LAYERS = (
    "layers: only tensors of modules have one; STALLOC_TRACE_MODULES=1 in mode Trace, or stalloc.layer(), records that "
    "of others"
)
