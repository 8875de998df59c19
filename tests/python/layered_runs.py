"""A traced step of a model with many layers that are alike, from events in text."""

from __future__ import annotations

from pathlib import Path

from event_runs import KIB, MIB, Writer

LAYERS = 32
ODD = 7  # a layer that keeps its attention's scores, too


def layered(build: Path, directory: Path, *, modules: bool = True) -> Path:
    """32 layers that each keep 2 x 1.5 MiB in mlp.up_proj and 1 MiB in self_attn; layer 7 keeps 4 MiB more. Set-up has
    1 MiB of weights. All of it lives at the peak, 133 MiB; `directory` gets the trace. Exact, so that it has hints."""
    writer = Writer()
    writer.lines.insert(1, "= trace_mode exact")
    writer.alloc(MIB)
    writer.mark("iteration")
    writer.mark("microbatch", "F")
    blocks = []
    for layer in range(LAYERS):
        for module, sizes in (("mlp.up_proj", (1536, 1536)), ("self_attn", (1024, 4096) if layer == ODD else (1024,))):
            name = f"Net.model.layers.{layer}.{module}"
            if modules:
                writer.mark("layer", "F", name=name)
            blocks += [writer.alloc(size * KIB) for size in sizes]
            if modules:
                writer.mark("layer", "F", name=name, edge="end")
    writer.mark("microbatch", "B")
    for block in reversed(blocks):
        writer.free(block)
    writer.mark("optimizer")
    writer.mark("iteration", index=1)
    (directory / "trace").mkdir(parents=True)
    writer.trace(directory / "trace" / "rank00000.trace", build)
    return directory
