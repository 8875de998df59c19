"""Twenty models that libraries build from their configs, with random weights, each in its library's kind of loop.

    python bench/estimates/programs.py NAME [--device cuda]     # STEPS of training; estimates.py runs it under stalloc

Nothing is downloaded. Sizes are such that a step takes seconds on two cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import Tensor, nn

STEPS = 5
PROGRAMS: dict[str, Callable[[str], None]] = {}  # by "library NAME"
# What detection reads of boxes that nobody computed: nearly all are kept, those of one level are a half, none is wrong.
ASSUMED = {
    "torchvision fasterrcnn_mobilenet_v3_large_320_fpn": "nonzero=1,equal=1/2,unique=3",
    "torchvision ssdlite320_mobilenet_v3_large": "nonzero=1",
    "torchvision fcos_resnet50_fpn": "nonzero=1/16,int=1",
}


def program(name: str, *arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(loop: Callable[..., None]) -> Callable[..., None]:
        PROGRAMS[name] = lambda device: loop(device, *arguments)
        return loop

    return register


# -- timm: its optimizer, schedule, mixup and average of weights


def images(count: int, side: int, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(STEPS):
        yield torch.randn(count, 3, side, side), torch.randint(0, classes, (count,))


@program("timm resnet18", "resnet18", 8, 128)
@program("timm vit_tiny_patch16_224", "vit_tiny_patch16_224", 4, 224)
@program("timm convnext_atto", "convnext_atto", 8, 128)
@program("timm efficientnet_b0", "efficientnet_b0", 4, 128)
@program("timm mixer_s32_224", "mixer_s32_224", 4, 224)
def with_timm(device: str, name: str, count: int, side: int) -> None:
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3, dispatch_clip_grad

    model = timm.create_model(name, pretrained=False, num_classes=100).to(device)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=STEPS)
    average, mixup, loss_of = ModelEmaV3(model), Mixup(mixup_alpha=0.8, num_classes=100), SoftTargetCrossEntropy()
    model.train()
    for step, (x, y) in enumerate(images(count, side, 100)):
        mixed, shares = mixup(x.to(device), y.to(device))
        loss = loss_of(model(mixed), shares)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step)
        schedule.step(step)


# -- torchvision: its reference scripts' loops for segmentation, video and detection


@program("torchvision lraspp_mobilenet_v3_large")
def segmentation(device: str) -> None:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, STEPS)
    for x, _ in images(4, 160, 21):
        target = torch.randint(0, 21, (4, 160, 160)).to(device)
        loss = nn.functional.cross_entropy(model(x.to(device))["out"], target, ignore_index=255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@program("torchvision r3d_18")
def video(device: str) -> None:
    from torchvision.models.video import r3d_18

    model = r3d_18(weights=None, num_classes=50).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        clip, label = torch.randn(2, 3, 8, 64, 64).to(device), torch.randint(0, 50, (2,)).to(device)
        loss = nn.functional.cross_entropy(model(clip), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


@program("torchvision fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn")
@program("torchvision ssdlite320_mobilenet_v3_large", "ssdlite320_mobilenet_v3_large")
@program("torchvision fcos_resnet50_fpn", "fcos_resnet50_fpn")
def detection(device: str, name: str) -> None:
    from torchvision.models import get_model

    size = {} if "320" in name else {"min_size": 128, "max_size": 160}
    model = get_model(name, weights=None, weights_backbone=None, num_classes=5, **size).to(device).train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.001, momentum=0.9)
    for _ in range(STEPS):
        pictures = [torch.rand(3, 128, 160).to(device) for _ in range(2)]
        corner = torch.rand(2, 3, 2) * 60
        boxes = torch.cat([corner, corner + 30 + torch.rand(2, 3, 2) * 30], 2)
        targets = [{"boxes": b.to(device), "labels": torch.randint(1, 5, (3,)).to(device)} for b in boxes]
        losses = model(pictures, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# -- transformers: its Trainer


class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, row: Callable[[], dict[str, Any]]) -> None:
        self._row = row

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, _: int) -> dict[str, Any]:
        return self._row()


def tokens(length: int, vocabulary: int = 1000) -> Tensor:
    return torch.randint(10, vocabulary, (length,))


def with_trainer(device: str, model: Any, row: Callable[[], dict[str, Any]]) -> None:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=4,
            report_to=[],
            save_strategy="no",
            logging_steps=2,
            disable_tqdm=True,
            use_cpu=device == "cpu",
        )
        Trainer(model=model, args=arguments, train_dataset=Rows(row)).train()


@program("transformers GPT2LMHeadModel", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 128, "n_layer": 4, "n_head": 4})
@program("transformers LlamaForCausalLM", "LlamaForCausalLM", "LlamaConfig", {"num_key_value_heads": 2})
@program(
    "transformers MixtralForCausalLM",
    "MixtralForCausalLM",
    "MixtralConfig",
    {"num_local_experts": 4, "num_key_value_heads": 2},
)
@program("transformers BertForMaskedLM", "BertForMaskedLM", "BertConfig", {})
@program(
    "transformers T5ForConditionalGeneration",
    "T5ForConditionalGeneration",
    "T5Config",
    {"d_model": 128, "decoder_start_token_id": 0},
)
def language(device: str, model: str, config: str, sizes: dict[str, int]) -> None:
    import transformers

    usual = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256}
    own = {} if {"n_embd", "d_model"} & set(sizes) else usual
    made = getattr(transformers, config)(vocab_size=1000, **{**own, **sizes})

    def row() -> dict[str, Any]:
        ids = tokens(64)
        return {"input_ids": ids, "labels": ids.clone()}

    with_trainer(device, getattr(transformers, model)(made), row)


# -- diffusers: noise at random times, its EMA, in accelerate's loop


@program("diffusers UNet2DModel", "UNet2DModel")
@program("diffusers UNet2DConditionModel", "UNet2DConditionModel")
@program("diffusers DiTTransformer2DModel", "DiTTransformer2DModel")
def diffusion(device: str, kind: str) -> None:
    import diffusers
    from accelerate import Accelerator
    from diffusers.training_utils import EMAModel

    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "sample_size": 32}
    sizes: dict[str, Any] = {
        "UNet2DModel": {**blocks, "down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
        | {"up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        "UNet2DConditionModel": {**blocks, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
        | {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 64, "in_channels": 3}
        | {"out_channels": 3},
        "DiTTransformer2DModel": {"num_attention_heads": 4, "attention_head_dim": 32, "in_channels": 3}
        | {"out_channels": 3, "num_layers": 3, "sample_size": 32, "num_embeds_ada_norm": 1000},
    }[kind]
    accelerator = Accelerator(cpu=device == "cpu")
    model = getattr(diffusers, kind)(**sizes)
    noising = diffusers.DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = torch.utils.data.DataLoader([torch.randn(3, 32, 32) for _ in range(4 * STEPS)], batch_size=4)
    model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
    average = EMAModel(model.parameters())
    average.to(accelerator.device)
    for clean in rows:
        noise = torch.randn_like(clean)
        times = torch.randint(0, 1000, (len(clean),), device=clean.device)
        more = {
            "UNet2DModel": {},
            "UNet2DConditionModel": {"encoder_hidden_states": torch.randn(len(clean), 8, 64, device=clean.device)},
            "DiTTransformer2DModel": {"class_labels": torch.zeros_like(times)},
        }[kind]
        with accelerator.accumulate(model):
            found = model(noising.add_noise(clean, noise, times), times, **more).sample
            loss = nn.functional.mse_loss(found, noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        average.step(model.parameters())


# -- torch_geometric: one graph by its mask of training nodes, and batches of small graphs


@program("torch_geometric GCN", "GCN")
@program("torch_geometric GIN", "GIN")
def graphs(device: str, kind: str) -> None:
    import torch_geometric.nn as geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

    def graph(nodes: int) -> Data:
        edges = torch.randint(0, nodes, (2, 8 * nodes))
        mask = torch.arange(nodes) % 4 == 0
        return Data(x=torch.randn(nodes, 64), edge_index=edges, y=torch.randint(0, 7, (nodes,)), train_mask=mask)

    model = getattr(geometric, kind)(64, 128, num_layers=3, out_channels=7, dropout=0.5).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    one = [graph(3000)] * STEPS
    batches = one if kind == "GCN" else DataLoader([graph(60 + 7 * (i % 9)) for i in range(16 * STEPS)], batch_size=16)
    for loaded in batches:
        batch = loaded.to(device)
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)
        loss = nn.functional.cross_entropy(out[batch.train_mask], batch.y[batch.train_mask])
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    chosen = parser.parse_args()
    torch.manual_seed(1)
    PROGRAMS[chosen.name](chosen.device)
