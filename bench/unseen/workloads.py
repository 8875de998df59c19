"""The workloads by name: what is trained, and what varies in it from iteration to iteration."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Optional, Union

import further
import programs
import routing
from programs import Plan
from routing import Draw, Experts, Shape
from torch import nn


@dataclasses.dataclass(frozen=True)
class Workload:
    """One of them; by default eight dense layers and four micro-batches of four full sequences."""

    varies: str
    program: Callable[[Plan], nn.Module] = programs.LanguageModel
    layers: int = 8
    micro_batches: Union[int, Callable[[Draw, int], int]] = 4
    shape: Callable[[Draw, int, int], Shape] = routing.fixed
    experts: Optional[Experts] = None
    recompute: str = "none"  # none, half (every second layer), full
    tells_tokens: bool = False  # stalloc.tokens() of each micro-batch
    marks_passes: bool = True  # or iterations only

    def micro_batches_of(self, draw: Draw, iteration: int) -> int:
        return self.micro_batches if isinstance(self.micro_batches, int) else self.micro_batches(draw, iteration)


# Tells how long its sequences are; these are padded unless said otherwise.
Told = functools.partial(Workload, shape=routing.padded, tells_tokens=True)

# Mixtures of experts on fixed lengths: each expert's tokens vary in every micro-batch.
EXPERTS = {
    "moe8-top1-capacity": Workload("no expert gets above 1.25 x the even share", experts=Experts(8, 1, capacity=1.25)),
    "moe16-top2-drift": Workload("loads drift apart fast", layers=6, experts=Experts(16, 2, drift=0.05)),
    "moe64-shared": Workload(
        "64 small experts and a shared one, loads drift",
        layers=4,
        micro_batches=2,
        experts=Experts(64, 4, ffn_divisor=4, shared=True, drift=0.02),
    ),
    "moe8-collapse": Workload("from iteration 10 on one expert takes most", experts=Experts(8, 2, collapse_from=10)),
    "moe8-collapse-acc1": Workload(
        "the same without accumulation", micro_batches=1, experts=Experts(8, 2, collapse_from=10)
    ),
    "moe16-empty": Workload("15 % of the experts get nothing", layers=6, experts=Experts(16, 2, empty=0.15)),
    "moe16-empty-acc1": Workload(
        "the same without accumulation", layers=6, micro_batches=1, experts=Experts(16, 2, empty=0.15)
    ),
    "moe8-recompute-acc8": Workload(
        "loads drift; all layers recomputed, eight micro-batches",
        layers=6,
        micro_batches=8,
        experts=Experts(8, 2, drift=0.03),
        recompute="full",
    ),
    "moe8-half-recompute": Workload(
        "loads drift; every second layer recomputed",
        micro_batches=2,
        experts=Experts(8, 2, drift=0.03),
        recompute="half",
    ),
    "ep-split": Workload(
        "expert-parallel: this rank's tokens vary; split over 8 experts",
        experts=Experts(8, 2, "split", share_spread=0.15),
    ),
    "ep-split-drift-acc1": Workload(
        "the same, drifting, without accumulation",
        micro_batches=1,
        experts=Experts(8, 2, "split", share_spread=0.1, drift=0.02),
    ),
    "ep-grouped": Workload(
        "expert-parallel: this rank's tokens vary; large GEMMs", experts=Experts(2, 2, "grouped", share_spread=0.2)
    ),
    "ep-grouped-recompute": Workload(
        "the same, all layers recomputed", experts=Experts(2, 2, "grouped", share_spread=0.2), recompute="full"
    ),
    "moe-every2-split": Workload(
        "experts in every second layer, loads far apart",
        micro_batches=2,
        experts=Experts(16, 1, "split", shared=True, every=2, spread=0.6),
    ),
}

# Dense models: lengths, batches, documents.
LENGTHS = {
    "var-pad": Told("lengths, from a quarter on"),
    "var-pad-acc1": Told("the same without accumulation", micro_batches=1),
    "var-pad-nomarks": Told("lengths; iterations alone are marked", marks_passes=False),
    "var-recompute": Told("lengths; all layers recomputed", recompute="full"),
    "var-batch-and-len": Told("number and length of sequences", shape=routing.batches_and_lengths, micro_batches=2),
    "var-packed": Workload("packed documents", micro_batches=2, shape=routing.packed),
    "var-packed-part": Told("packed documents, none is cut", shape=routing.packed_loosely, micro_batches=2),
    "var-bucket": Told("six lengths", shape=routing.bucketed, micro_batches=1),
    "var-bucket-acc4": Told("six lengths, four micro-batches", shape=routing.bucketed),
    "var-curriculum": Told("longer every iteration", shape=routing.curriculum, micro_batches=2),
    "var-curriculum-steps": Told("longer three times", shape=routing.curriculum_steps, micro_batches=2),
    "var-stair": Workload("one length for a while, then another", micro_batches=2, shape=routing.stair),
    "var-batch-warmup": Workload("a sequence more every five iterations", micro_batches=2, shape=routing.batch_warmup),
    "var-acc-growing": Workload("a micro-batch more every five iterations", micro_batches=routing.more_every_fifth),
    "var-acc": Told("lengths and the number of micro-batches", micro_batches=routing.one_to_six),
    "fixed-acc-varies": Workload("the number of micro-batches", micro_batches=routing.one_to_six),
}

# Experts and lengths together.
EXPERTS_AND_LENGTHS = {
    "moe16-stair": Workload(
        "one length for a while, then another",
        layers=4,
        micro_batches=2,
        shape=routing.stair,
        experts=Experts(16, 2),
    ),
    "moe16-varlen": Told("lengths", layers=6, experts=Experts(16, 2)),
    "moe8-varlen-split-recompute": Told(
        "lengths and this rank's share; all layers recomputed",
        experts=Experts(8, 2, "split", share_spread=0.1),
        recompute="full",
    ),
    "moe8-varlen-acc1": Told(
        "lengths, loads drift; no accumulation", micro_batches=1, experts=Experts(8, 1, shared=True, drift=0.03)
    ),
    "moe8-varlen-grouped": Told(
        "lengths and this rank's share; large GEMMs",
        micro_batches=2,
        experts=Experts(2, 2, "grouped", share_spread=0.1),
    ),
}

# Other programs than language models in training from scratch.
OTHERS = {
    "encdec": Told(
        "lengths of sources and of targets",
        shape=routing.sources_and_targets,
        program=programs.EncoderDecoder,
        layers=5,
        micro_batches=2,
    ),
    "vit": Workload(
        "height and width of images", programs.VisionTransformer, micro_batches=2, shape=routing.any_aspect
    ),
    "conv-multiscale": Workload(
        "images' size, every three iterations", programs.Convolutional, micro_batches=2, shape=routing.multiscale
    ),
    "gan": Workload(
        "lengths; two models in turn",
        programs.Adversarial,
        layers=4,
        shape=routing.made_and_real,
    ),
    "distill": Told("lengths, under a frozen teacher", program=programs.Distillation, layers=6, micro_batches=2),
    "lora": Told(
        "number and length of sequences; frozen but for adapters",
        shape=routing.batches_of_short,
        program=programs.Adapted,
        layers=10,
        micro_batches=2,
    ),
}

# Where which parts of a model train varies, or what they do.
PARTS = {
    "moe16-choose": Told("lengths; experts choose tokens", layers=6, experts=Experts(16, 2, choose=True)),
    "moe16-mostly-empty": Workload(
        "most experts get nothing, none above the even share; one shared",
        layers=6,
        experts=Experts(16, 2, shared=True, capacity=1.0, empty=0.6),
    ),
    "moe16-curriculum": Told(
        "longer every iteration, loads drift",
        layers=6,
        micro_batches=2,
        shape=routing.curriculum,
        experts=Experts(16, 2, drift=0.03),
    ),
    "mixture-of-depths": Workload(
        "every second layer sees some of the tokens", further.PartialDepth, shape=routing.half_of_layers_see_few
    ),
    "layer-drop": Workload("which layers there are", further.PartialDepth, shape=routing.layers_dropped),
    "layer-drop-acc1": Workload(
        "the same without accumulation", further.PartialDepth, micro_batches=1, shape=routing.layers_dropped
    ),
    "early-exit": Workload("how many layers there are", further.PartialDepth, shape=routing.early_exit),
    "var-masked": Told(
        "packed documents, none is cut, under a mask",
        further.Masked,
        layers=6,
        micro_batches=2,
        shape=routing.packed_loosely,
    ),
    "two-tasks": Workload("texts of any length or images", further.TwoTasks, shape=routing.text_or_images),
    "rollouts": Workload(
        "number and length of prompts and of answers", further.Rollouts, layers=6, shape=routing.prompts_and_answers
    ),
}

WORKLOADS: dict[str, Workload] = {**EXPERTS, **LENGTHS, **EXPERTS_AND_LENGTHS, **OTHERS, **PARTS}
