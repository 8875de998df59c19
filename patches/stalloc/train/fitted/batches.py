"""Micro-batches of frameworks that say how many rows they have, and take others: transformers' Trainer, Lightning and
Megatron-LM. A step has as many rows as before.

Of a program the first one that sets up its training counts; what comes later, as a second Trainer, stays as it is.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from stalloc.core.fit_files import Batch
from stalloc.train.fitted import lightning
from stalloc.train.patching import Function, Patcher, Target, argument

TRAINER, MEGATRON = "trainer", "megatron"

Settle = Callable[[Batch], Batch]

_settle: Optional[Settle] = None
_saves = True


def watch(settle: Settle, saves: bool = True) -> None:
    """`settle` is called once with what the program's framework has, and answers what it gets instead. Without `saves`
    frameworks write no checkpoints and report to nobody."""
    global _settle, _saves
    _settle, _saves = settle, saves
    for patcher in PATCHERS:
        patcher.apply()


def _settled(own: Batch) -> Batch:
    global _settle
    settle, _settle = _settle, None
    return own if settle is None else settle(own)


def _trainer(original: Function) -> Function:
    arguments_of = argument(original, "args")

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = arguments_of((self, *args), kwargs)
        # DeepSpeed's configuration has the same numbers, and has taken them already.
        if arguments is not None and not getattr(arguments, "deepspeed", None):
            own = Batch(TRAINER, arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps)
            new = _settled(own)
            if new != own:
                arguments.per_device_train_batch_size = new.micro_batch
                arguments.gradient_accumulation_steps = new.accumulation
            if not _saves:
                arguments.save_strategy, arguments.report_to, arguments.push_to_hub = "no", [], False
        original(self, *args, **kwargs)

    return init


def _megatron(original: Function) -> Function:
    arguments_of = argument(original, "args")

    def validate(*args: Any, **kwargs: Any) -> Any:
        arguments = arguments_of(args, kwargs)
        rows = getattr(arguments, "micro_batch_size", None)
        if rows and not any(getattr(arguments, name, None) for name in _GROWING):
            replicas = _replicas(arguments)
            step = arguments.global_batch_size or rows * replicas
            own = Batch(MEGATRON, rows, max(1, step // (rows * replicas)))
            new = _settled(own)
            if new != own:
                arguments.micro_batch_size = new.micro_batch
                arguments.global_batch_size = new.micro_batch * new.accumulation * replicas
        done = original(*args, **kwargs)
        if not _saves:
            arguments.save = arguments.tensorboard_dir = None
        return done

    return validate


def _replicas(arguments: Any) -> int:
    """Of the model: ranks that take other rows."""
    ranks = int(getattr(arguments, "world_size", 1) or 1)
    for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
        ranks //= int(getattr(arguments, name, 1) or 1)
    return max(1, ranks)


_GROWING = ("rampup_batch_size", "step_batch_size_schedule")
_LIGHTNING = {
    "micro-batch": lambda original: lightning.loaders(original, _settled),
    "trainer": lambda original: lightning.silent(original, lambda: _saves),
}


def _lightning(root: str) -> Patcher:
    loaders = Target("micro-batch", f"{root}.trainer.connectors.data_connector", "_process_dataloader")
    trainer = Target("trainer", f"{root}.trainer.trainer", "Trainer.__init__")
    return Patcher(root.partition(".")[0], (loaders, trainer), _LIGHTNING)


PATCHERS = (
    Patcher(
        "transformers", (Target("micro-batch", "transformers.trainer", "Trainer.__init__"),), {"micro-batch": _trainer}
    ),
    _lightning("lightning.pytorch"),
    _lightning("pytorch_lightning"),
    Patcher(
        "megatron",
        (Target("micro-batch", "megatron.training.arguments", "validate_args"),),
        {"micro-batch": _megatron},
    ),
)
