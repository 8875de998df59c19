"""A choice as settings: Megatron-LM's arguments, transformers' Trainer, Lightning, plain torch.

Megatron-LM, Trainer and Lightning recompute whole layers, or some parts of each; where a choice is finer, the next
coarser setting is given, with a note that it is coarser.
"""

from __future__ import annotations

import re
from typing import Any

from stalloc.core import module_paths
from stalloc.core.module_paths import pattern_of
from stalloc.tools.report import how_to

KINDS = ("torch", "megatron", "trainer", "lightning")


def module_path(layer: str) -> str:
    """The path in the model's named_modules(), from the trace's name: "GPT.blocks.3" -> "blocks.3"."""
    return module_paths.in_model(layer)


def settings(kind: str, chosen: dict[str, Any], layers: list[str]) -> dict[str, Any]:
    """The settings. `layers`: all layers of the trace, by path in the model."""
    writers = {"torch": _torch, "megatron": _megatron, "trainer": _trainer, "lightning": _lightning}
    return writers[kind](chosen, layers)


def with_rows(kind: str, written: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Settings of a choice whose micro-batch was in units of length: its rows and the length, by the kind's names."""
    length, rows = chosen["sequence_length"], chosen["micro_batch"]
    if kind == "megatron":
        words = [*written["arguments"], "--seq-length", str(length)]
        words[words.index("--micro-batch-size") + 1] = str(rows)
        return {**written, "arguments": words}
    where = {"torch": written, "trainer": written.get("arguments"), "lightning": written.get("dataloader")}[kind]
    names = {"torch": "micro_batch", "trainer": "per_device_train_batch_size", "lightning": "batch_size"}
    return {**written, **_placed(kind, {**(where or {}), names[kind]: rows}), "sequence_length": length}


def _placed(kind: str, changed: dict[str, Any]) -> dict[str, Any]:
    return changed if kind == "torch" else {"arguments" if kind == "trainer" else "dataloader": changed}


def _chain(paths: list[str], layers: list[str]) -> tuple[int, int]:
    """How many layers of the model's chain are chosen as a whole, and how many there are."""
    chains = [path for path in layers if re.fullmatch(r"(.*\.)?\d+", path) and pattern_of(path).count("*") == 1]
    return len(set(chains) & set(paths)), len(chains)


def _call(chosen: dict[str, Any], model: str = "model") -> str:
    """The call of `stalloc.apply`; "": there is nothing to do."""
    optimizer = ", optimizer" if chosen["offload_state"] else ""
    changes = chosen["recompute"] or chosen["offload"] or chosen["offload_state"]
    return f'stalloc.apply("fit.json", {model}{optimizer})' if changes else ""


def _torch(chosen: dict[str, Any], layers: list[str]) -> dict[str, Any]:
    return {
        "micro_batch": chosen["micro_batch"],
        "accumulation": chosen["accumulation"],
        "python": _call(chosen),
    }


def _accumulated(chosen: dict[str, Any]) -> str:
    return f"a step has {chosen['tokens_of_a_step']:.2f} x the tokens of a traced one"


def _trainer(chosen: dict[str, Any], layers: list[str]) -> dict[str, Any]:
    whole, chain = _chain(chosen["recompute"], layers)
    others = chosen["offload"] or chosen["offload_state"] or len(chosen["recompute"]) > whole
    everything = whole == chain > 0 and not others
    optimizer = ", optimizers=(optimizer, None)" if chosen["offload_state"] else ""
    call = "" if everything else _call(chosen)
    return {
        "arguments": {
            "per_device_train_batch_size": chosen["micro_batch"],
            "gradient_accumulation_steps": chosen["accumulation"],
            "gradient_checkpointing": everything,
            **({"gradient_checkpointing_kwargs": {"use_reentrant": False}} if everything else {}),
        },
        "python": call and f"{call}  # before Trainer(model=model{optimizer}, ...)",
        "note": _accumulated(chosen),
    }


def _lightning(chosen: dict[str, Any], layers: list[str]) -> dict[str, Any]:
    call = _call(chosen, "self.model")
    where = "configure_optimizers" if chosen["offload_state"] else "configure_model"
    return {
        "arguments": {"accumulate_grad_batches": chosen["accumulation"]},
        "dataloader": {"batch_size": chosen["micro_batch"]},
        "python": call and f"{call}  # in {where}()",
        "note": _accumulated(chosen),
    }


def _megatron(chosen: dict[str, Any], layers: list[str]) -> dict[str, Any]:
    words = ["--micro-batch-size", str(chosen["micro_batch"])]
    notes = []
    paths = chosen["recompute"]
    if paths:
        whole, _ = _chain(paths, layers)
        if whole:
            # `block` recomputes the first N layers of each stage's chunk.
            words += ["--recompute-granularity", "full", "--recompute-method", "block"]
            words += ["--recompute-num-layers", str(_of_a_chunk(paths, whole))]
        parts = {pattern_of(path) for path in paths} - {
            pattern_of(path) for path in paths if re.search(r"(^|\.)\d+$", path)
        }
        modules = sorted(
            {how_to.MEGATRON_MODULES[end] for end in map(_inside, parts) if end in how_to.MEGATRON_MODULES}
        )
        if modules and not whole:
            words += ["--recompute-granularity", "selective", "--recompute-modules", *modules]
            notes.append("selective recomputation is of every layer; the choice may have fewer")
        left = {part for part in parts if whole or _inside(part) not in how_to.MEGATRON_MODULES}
        if left:
            how = "together with whole layers" if whole else "alone"
            notes.append(f"no option of Megatron-LM recomputes these {how}: {', '.join(sorted(left))}")
    if chosen["offload"]:
        offloaded = ", ".join(sorted(set(map(pattern_of, chosen["offload"]))))
        notes.append(f"to offload {offloaded}: {how_to.offload('', [], megatron=True)}")
    if chosen["offload_state"]:
        words.append("--optimizer-cpu-offload")
    return {"arguments": words, "note": "; ".join(notes)}


def _of_a_chunk(paths: list[str], whole: int) -> int:
    """Chunks of a pipeline's stage number their layers from 0 each: as often as the first one is there."""
    firsts = sum(path.endswith(".0") for path in paths) or 1
    return -(-whole // firsts)


def _inside(pattern: str) -> str:
    head, _, inside = pattern.rpartition("*.")
    return inside.removeprefix("self_attention.") if head or pattern.startswith("*.") else ""
