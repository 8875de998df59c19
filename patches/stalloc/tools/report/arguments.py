"""The configuration of a run of Megatron-LM, from its command line, or from what Megatron settled."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Optional

from stalloc.core import megatron_arguments
from stalloc.tools.report.configuration import Configuration


class EstimateError(Exception):
    """The configuration cannot be counted; the text is for the user."""


def configuration_of(view: dict[str, Any]) -> Optional[Configuration]:
    """Like `traced_configuration`; None if the run is not Megatron-LM's."""
    try:
        return traced_configuration(view)
    except EstimateError:
        return None


def traced_configuration(view: dict[str, Any], world_size: int = 0) -> Configuration:
    """The configuration of the traced run, changed by `added_options`, of a world of another size if one is given.
    EstimateError names what is missing."""
    fingerprint = view["rank"]["fingerprint"]
    world = world_size or max(1, fingerprint["world_size"])
    config = parse(words_of(view), world, fingerprint["rank"], settled_of(view))
    return dataclasses.replace(config, cuda=view["devices"][0]["device"] >= 0)


def words_of(view: dict[str, Any]) -> list[str]:
    """The configuration of the command line, and of what was added to it. With settled arguments the command line says
    nothing more."""
    added: list[str] = view.get("added_options", [])
    return added if settled_of(view) else [*view["rank"]["fingerprint"]["command_line"], *added]


def settled_of(view: dict[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = view.get("megatron_arguments") or {}
    return found


def parse(
    arguments: Sequence[str], world_size: int, rank: int, settled: Mapping[str, Any] = MappingProxyType({})
) -> Configuration:
    """Megatron-LM's own arguments; those that do not matter here are skipped. EstimateError if some are missing.

    `settled`: what stands where `arguments` says nothing else, before defaults.
    """
    known, _ = megatron_arguments.parser().parse_known_args(list(arguments), _namespace(settled))
    needed = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "micro_batch_size")
    missing = [name for name in needed if getattr(known, name) is None]
    if missing:
        options = ", ".join("--" + name.replace("_", "-") for name in missing)
        if len(missing) == len(needed):
            raise EstimateError(
                f"it is for Megatron-LM's configurations, and the command line has no {options}: give them after --. "
                "For any other run, stalloc whatif computes from its trace what would fit"
            )
        raise EstimateError(f"the command line has no {options}")
    values = {
        field.name: getattr(known, field.name) for field in dataclasses.fields(Configuration) if field.name in known
    }
    values["disable_bias_linear"] = not known.add_bias_linear
    values["vocab_size"] = known.vocab_size or known.padded_vocab_size or 0
    if not values["vocab_size"]:
        raise EstimateError("the command line has no --vocab-size (a tokenizer's size is not known here): give one")
    per_chunk = known.num_layers_per_virtual_pipeline_stage
    stages = known.pipeline_model_parallel_size
    values["virtual_stages"] = (
        known.num_layers // stages // per_chunk if per_chunk else known.num_virtual_stages_per_pipeline_rank or 1
    )
    values["ffn_hidden_size"] = known.ffn_hidden_size or _default_ffn(known)
    values["moe_ffn_hidden_size"] = known.moe_ffn_hidden_size or values["ffn_hidden_size"]
    values["kv_channels"] = known.kv_channels or known.hidden_size // known.num_attention_heads
    values["num_query_groups"] = known.num_query_groups if known.group_query_attention else known.num_attention_heads
    values["local_layers"] = known.transformer_impl == "local"
    # They multiply queries and keys, whatever backend is requested.
    values["fused_attention"] = known.attention_backend != "unfused" and not values["local_layers"]
    learned = known.position_embedding_type == "learned_absolute"
    values["rotary"] = known.position_embedding_type == "rope"
    values["learned_positions"] = (known.max_position_embeddings or known.seq_length) if learned else 0
    values["mixed_precision"] = known.bf16 or known.fp16
    values["fp32_gradients"] = known.bf16 or known.accumulate_allreduce_grads_in_fp32
    values["global_batch_size"] = known.global_batch_size or known.micro_batch_size
    return Configuration(**values, world_size=world_size, rank=rank)


def _namespace(settled: Mapping[str, Any]) -> argparse.Namespace:
    """None is what Megatron has where nothing was chosen. The tokenizer's vocabulary is in the padded one."""
    known = {name: value for name, value in settled.items() if value is not None}
    if "padded_vocab_size" in known:
        known["vocab_size"] = known["padded_vocab_size"]
    return argparse.Namespace(**known)


def _default_ffn(known: argparse.Namespace) -> int:
    # Megatron-LM: 4 h, or 2/3 of it in units of 64 where units are gated.
    return int(4 * known.hidden_size * 2 / 3 / 64) * 64 if known.swiglu else 4 * known.hidden_size
