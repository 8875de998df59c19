"""A choice of `stalloc fit` in the words of frameworks: all of it is set, or it is said what is not."""

from __future__ import annotations

from typing import Any

import pytest

from stalloc.tools.fitting import settings

LAYERS = [f"model.layers.{i}" for i in range(4)]
PARTS = [f"{layer}.{part}" for layer in LAYERS for part in ("mlp", "norm")]


def chosen(**changed: Any) -> dict[str, Any]:
    every = {"micro_batch": 2, "accumulation": 4, "tokens_of_a_step": 1.0}
    return {**every, "recompute": [], "offload": [], "offload_state": False, **changed}


def set_by(kind: str, **changed: Any) -> dict[str, Any]:
    return settings.settings(kind, chosen(**changed), [*LAYERS, *PARTS])


def test_megatron_s_arguments() -> None:
    words = " ".join(set_by("megatron", recompute=LAYERS[:3])["arguments"])
    assert (
        words == "--micro-batch-size 2 --recompute-granularity full --recompute-method block --recompute-num-layers 3"
    )
    words = " ".join(set_by("megatron", recompute=PARTS[::2], offload_state=True)["arguments"])
    assert "--recompute-granularity selective --recompute-modules mlp" in words
    assert words.endswith("--optimizer-cpu-offload")


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"recompute": PARTS[1::2]}, "no option of Megatron-LM recomputes these alone: model.layers.*.norm"),
        (
            {"recompute": PARTS},
            "selective recomputation is of every layer; the choice may have fewer; "
            "no option of Megatron-LM recomputes these alone: model.layers.*.norm",
        ),
        (
            {"recompute": [*LAYERS[:2], *PARTS[4:]]},
            "no option of Megatron-LM recomputes these together with whole layers: "
            "model.layers.*.mlp, model.layers.*.norm",
        ),
        ({"offload": PARTS[:2]}, "to offload model.layers.*.mlp, model.layers.*.norm: --fine-grained-activation-off"),
        ({"recompute": LAYERS}, ""),
    ],
)
def test_what_megatron_cannot_set_is_said(changed: Any, note: str) -> None:
    found = set_by("megatron", **changed)["note"]
    assert found.startswith(note) if note else found == ""


def test_a_trainer_recomputes_all_layers_by_itself() -> None:
    every = set_by("trainer", recompute=LAYERS)
    assert every["arguments"]["gradient_checkpointing"] is True
    assert every["python"] == ""


@pytest.mark.parametrize(
    ("changed", "optimizer"),
    [
        ({"recompute": LAYERS[:2]}, ""),
        ({"recompute": [*LAYERS, "lm_head"]}, ""),
        ({"recompute": LAYERS, "offload": ["lm_head"]}, ""),
        ({"offload": LAYERS}, ""),
        ({"recompute": LAYERS, "offload_state": True}, "optimizer"),
        ({"offload_state": True}, "optimizer"),
    ],
)
def test_what_is_finer_is_applied(changed: Any, optimizer: str) -> None:
    argument = optimizer and f", {optimizer}"
    call = f'stalloc.apply("fit.json", model{argument})'
    trainer = set_by("trainer", **changed)
    assert trainer["arguments"]["gradient_checkpointing"] is False, "it would be recomputed twice"
    assert trainer["python"].startswith(call)
    assert ("optimizers=(optimizer, None)" in trainer["python"]) == bool(optimizer)
    lightning = set_by("lightning", **changed)["python"]
    assert lightning.startswith(call.replace("model", "self.model"))
    assert ("configure_optimizers" in lightning) == bool(optimizer)
    assert set_by("torch", **changed)["python"] == call


@pytest.mark.parametrize("kind", ["torch", "trainer", "lightning"])
def test_nothing_to_change_is_nothing_to_apply(kind: str) -> None:
    assert set_by(kind)["python"] == ""
