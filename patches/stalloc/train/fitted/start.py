"""A start that gets what was chosen: modules recomputed or offloaded as they are found, the optimizer's state offloaded
with its first step, micro-batches where the framework takes them. STALLOC_FIT names the choice."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Optional

from stalloc.core import files, log
from stalloc.core.fit_files import Batch, Choice, Model
from stalloc.train.changes.applied import ApplyError, apply_to
from stalloc.train.fitted import batches, models
from stalloc.train.fitted.models import Models, parameters


class Start:
    """Of this process. The choice goes where it does not fit the program: the next start makes a new one."""

    def __init__(self, choice: Choice, torch: Any) -> None:
        self._choice = choice
        self._left = list(choice.models)
        self._batch_left = choice.batch
        self._iterations = 0
        self._models: Optional[Models] = Models(torch, self._change)
        batches.watch(self._settle)
        if choice.offload_state:
            self._offload_states()

    def iteration_finished(self, _: int) -> None:
        """All models have trained."""
        self._iterations += 1
        if self._models is None or self._iterations < models.ITERATIONS:
            return
        self._models.stop()
        self._models = None
        lacking = [model for model in self._left if model.recompute or model.offload]
        if lacking:
            raise self._wrong(f"expected {lacking[0].said()} to train in the first iterations, found none")
        if self._batch_left is not None:
            raise self._wrong(f"expected {self._batch_left.framework} to make its micro-batches, found none")

    def _change(self, model: Any) -> None:
        found = Model(type(model).__name__, parameters(model))
        expected = next((each for each in self._left if each.is_like(found)), None)
        if expected is None:
            wanted = ", ".join(each.said() for each in self._left) or "no further model"
            raise self._wrong(f"expected {wanted}, found {found.said()}")
        self._left.remove(expected)
        if not (expected.recompute or expected.offload):
            return
        chosen = {"recompute": expected.recompute, "offload": expected.offload, "offload_state": False}
        try:
            changed = apply_to(model, chosen, self._choice.file)
        except ApplyError as error:
            self._forget()
            raise ApplyError(f"{error}; {_AGAIN}") from error
        log.info(f"{found.kind}: {len(changed)} modules are changed as chosen in {self._choice.file}")

    def _settle(self, own: Batch) -> Batch:
        expected, new = self._choice.own, self._batch_left
        self._batch_left = None
        if new is None or expected is None:
            return own
        if own != expected:
            raise self._wrong(f"expected {_said(expected)}, found {_said(own)}")
        if new != own:
            log.info(f"{_said(new)}, as chosen, instead of {_said(own)}")
        return new

    def _offload_states(self) -> None:
        state = importlib.import_module("stalloc.train.changes.state")
        optimizers = importlib.import_module("torch.optim.optimizer")

        def before_step(optimizer: Any, *_: Any) -> None:
            state.offload(optimizer)

        uncompiled: Callable[[Any], Any] = getattr(importlib.import_module("torch"), "_disable_dynamo", lambda one: one)
        optimizers.register_optimizer_step_pre_hook(uncompiled(before_step))

    def _wrong(self, text: str) -> ApplyError:
        self._forget()
        return ApplyError(f"{self._choice.file}: {text}; {_AGAIN}")

    def _forget(self) -> None:
        try:
            files.remove(self._choice.file)
        except OSError as error:
            log.warning(f"the choice could not be removed: {error}")


_AGAIN = "the program has changed since it was made: it is removed, and the next start makes a new one"


def _said(batch: Batch) -> str:
    return f"{batch.framework}: micro-batches of {batch.micro_batch}, {batch.accumulation} a step"
