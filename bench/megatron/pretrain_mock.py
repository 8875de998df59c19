"""Megatron's `pretrain` on a GPT with made-up data: what a user's pretrain_gpt.py is, and nothing more.

Takes Megatron's arguments. Needs the published megatron-core (0.17 on: it contains megatron.training) and neither
TransformerEngine nor Apex: pass `--transformer-impl local` and the rest of what workloads.py passes. Marks come with
the import below; without STALLOC_MODE it does nothing. `--result-dir DIR` writes what this rank held, and a digest of
its weights, to DIR/rank00000.json. With `--vary-lengths 0.5 0.75 1` each micro-batch has one of these parts of the
sequence length, drawn alike on all ranks; schedules that interleave draw for each model chunk anew, and cannot have it.
"""

from __future__ import annotations

import stalloc.megatron  # first: the allocator has to be in place before anything initialises CUDA

import argparse  # isort: skip
import hashlib
import inspect
import json
import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from megatron.core import mpu
from megatron.core.datasets import utils as dataset_utils
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.package_info import __version__ as megatron_version
from megatron.core.utils import get_attr_wrapped_model
from megatron.training import get_args, pretrain
from megatron.training.arguments import core_transformer_config_from_args
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset
from without_extensions import supply

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from occupied import occupy, parse_bytes

MODELS: list[Any] = []  # the chunks of this rank
LENGTHS = random.Random(1234)


class MockTokens(Dataset[dict[str, torch.Tensor]]):
    """Row i is the same in every process. Half of it repeats the row before, so that there is something to learn."""

    def __init__(self, rows: int, length: int, vocabulary: int) -> None:
        self.rows, self.length, self.vocabulary = rows, length, vocabulary

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(1234 + row)
        half = torch.randint(0, self.vocabulary, ((self.length + 2) // 2,), generator=generator)
        text = torch.cat([half, half])[: self.length + 1]
        return {
            "tokens": text[:-1].contiguous(),
            "labels": text[1:].contiguous(),
            "loss_mask": torch.ones(self.length),
            "position_ids": torch.arange(self.length),
        }


def provide_datasets(samples: list[int | None], vp_stage: int | None = None) -> tuple[MockTokens, ...]:
    """As many rows as Megatron requests; where its batch grows it requests those of the first batch size only."""
    args = get_args()
    least = 1 << 20 if getattr(args, "step_batch_size_schedule", None) else 1
    return tuple(MockTokens(max(count or 0, least), args.seq_length, args.vocab_size) for count in samples)


# Every tensor-parallel rank reads its own data, which is the same: nothing has to be broadcast.
provide_datasets.is_distributed = True  # type: ignore[attr-defined]


def provide_model(
    pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **others: Any
) -> GPTModel:
    args = get_args()
    supply(args)
    config = others.get("config") or core_transformer_config_from_args(args)
    config.variable_seq_lengths = args.vary_lengths is not None
    if args.num_experts:
        spec = get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=args.normalization, vp_stage=vp_stage
        )
    else:
        spec = get_gpt_layer_local_spec(
            normalization=args.normalization,
            qk_layernorm=args.qk_layernorm,
            multi_latent_attention=args.multi_latent_attention,
        )
    further: dict[str, Any] = {}
    if args.mtp_num_layers:
        further["mtp_block_spec"] = get_gpt_mtp_block_spec(
            config, spec, use_transformer_engine=False, vp_stage=vp_stage
        )
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        parallel_output=True,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        vp_stage=vp_stage,
        **further,
    )
    MODELS.append(model)
    return model


def loss_of(mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    mask = mask.reshape(-1).float()  # not contiguous where lengths vary and the device is the host
    loss = torch.sum(output.view(-1).float() * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}


def forward_step(data_iterator: Any, model: Any, return_schedule_plan: bool = False) -> tuple[Any, Any]:
    """With `return_schedule_plan` (passes merged to overlap the experts' communication) Megatron runs the model."""
    stage = get_attr_wrapped_model(model, "vp_stage")
    of_stage = {} if stage is None else {"ignore_virtual": False, "vp_stage": stage}
    first, last = mpu.is_pipeline_first_stage(**of_stage), mpu.is_pipeline_last_stage(**of_stage)
    tokens = labels = mask = positions = None
    length = int(get_args().seq_length * LENGTHS.choice(get_args().vary_lengths or [1.0]))
    if first or last:
        batch = {name: tensor[:, :length].cuda(non_blocking=True) for name, tensor in next(data_iterator).items()}
        tokens, labels, mask, positions = (batch[k] for k in ("tokens", "labels", "loss_mask", "position_ids"))
    run = get_attr_wrapped_model(model, "build_schedule_plan") if return_schedule_plan else model
    output = run(tokens, positions, None, labels=labels if last else None)
    return output, partial(loss_of, mask)


def run_pretrain(add_arguments: Any) -> None:
    """Over the versions: 0.17 parses by itself, 0.18 on takes a container of configurations."""
    arguments: dict[str, Any] = {
        "train_valid_test_dataset_provider": provide_datasets,
        "model_provider": provide_model,
        "model_type": ModelType.encoder_or_decoder,
        "forward_step_func": forward_step,
    }
    defaults = {"tokenizer_type": "NullTokenizer"}
    if "cfg_container" in inspect.signature(pretrain).parameters:
        from megatron.training.argument_utils import pretrain_cfg_container_from_args
        from megatron.training.arguments import parse_and_validate_args

        parsed = parse_and_validate_args(extra_args_provider=add_arguments, args_defaults=defaults)
        arguments["cfg_container"] = pretrain_cfg_container_from_args(parsed)
    else:
        arguments |= {"extra_args_provider": add_arguments, "args_defaults": defaults}
    pretrain(**arguments)


def add_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--result-dir", type=Path)
    parser.add_argument("--card", type=parse_bytes, help="of the device's memory, so much is there (bench/occupied.py)")
    parser.add_argument("--vary-lengths", type=float, nargs="+", help="parts of --seq-length")
    return stalloc.megatron.add_arguments(parser)


def result() -> dict[str, Any]:
    """Memory first: the digest is not to be in it."""
    figures: dict[str, Any] = {"megatron": megatron_version, "torch": torch.__version__, "mode": stalloc.mode()}
    if torch.cuda.is_initialized():
        stats = torch.cuda.memory_stats()
        figures |= {
            "device": torch.cuda.get_device_name(),
            "device_bytes": torch.cuda.get_device_properties().total_memory,
            "held_peak_bytes": stats["reserved_bytes.all.peak"],
            "allocated_peak_bytes": stats["allocated_bytes.all.peak"],
            "alloc_retries": stats["num_alloc_retries"],
        }
    if stalloc.installed():
        figures["stalloc"] = stalloc.stats()
    digest = hashlib.sha256()
    for model in MODELS:
        for parameter in model.parameters():
            own = parameter.to_local() if isinstance(parameter, DTensor) else parameter  # this rank's part
            digest.update(own.detach().cpu().flatten().view(torch.uint8).numpy())
    figures["weights_sha256"] = digest.hexdigest()
    return figures


def main() -> None:
    # The wheel brings the compiled helper along; Megatron would run make in a source tree.
    dataset_utils.compile_helpers = lambda: None
    chosen, _ = add_arguments(argparse.ArgumentParser(add_help=False)).parse_known_args()
    if chosen.card is not None:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        torch.cuda.set_device(device)
        occupy(chosen.card, device)
    run_pretrain(add_arguments)
    directory = get_args().result_dir
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"rank{int(os.environ.get('RANK', '0')):05d}.json"
        path.with_suffix(".tmp").write_text(json.dumps(result()))
        path.with_suffix(".tmp").replace(path)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
