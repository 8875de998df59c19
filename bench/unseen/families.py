"""Kinds of training that language models' loops are far from, one class each: `loss()` is that of the next micro-batch,
whose sizes, parts or number of requests are drawn anew from Python's and torch's random numbers.

A family that needs a library besides torch imports it itself.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import rnn


class Detection(nn.Module):
    """Images of any size with any number of objects; proposals, and so the heads' rows, follow them (torchvision)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from torchvision.models import detection

        make = getattr(detection, name)
        self.model = make(weights=None, weights_backbone=None, num_classes=6, min_size=160, max_size=256)
        self.with_masks = name.startswith("mask")

    def target(self, height: int, width: int) -> dict[str, Tensor]:
        objects = random.randint(1, 8)
        corner = torch.rand(objects, 2) * torch.tensor([width * 0.6, height * 0.6])
        boxes = torch.cat([corner, corner + 8 + torch.rand(objects, 2) * torch.tensor([width * 0.3, height * 0.3])], 1)
        target = {"boxes": boxes, "labels": torch.randint(1, 6, (objects,))}
        if self.with_masks:
            target["masks"] = torch.randint(0, 2, (objects, height, width), dtype=torch.uint8)
        return target

    def loss(self) -> Tensor:
        sizes = [(random.randint(120, 300), random.randint(120, 300)) for _ in range(2)]
        images = [torch.rand(3, height, width) for height, width in sizes]
        losses = self.model(images, [self.target(height, width) for height, width in sizes])
        return torch.stack(list(losses.values())).sum()


class Graphs(nn.Module):
    """A graph attention network on batches of graphs of any size (torch_geometric)."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv, global_mean_pool

        self.layers = nn.ModuleList(GATConv(64 if index else 16, 16, heads=4) for index in range(4))
        self.pool, self.head = global_mean_pool, nn.Linear(64, 10)

    def loss(self) -> Tensor:
        nodes = torch.tensor([int(random.lognormvariate(5, 0.7)) + 8 for _ in range(16)])
        starts = torch.cumsum(nodes, 0) - nodes
        inner = [torch.randint(0, int(size), (2, 6 * int(size))) for size in nodes]
        edges = torch.cat([start + ends for start, ends in zip(starts, inner)], 1)
        graph = torch.repeat_interleave(torch.arange(16), nodes)
        x = torch.rand(int(nodes.sum()), 16)
        for layer in self.layers:
            x = functional.elu(layer(x, edges))
        return functional.cross_entropy(self.head(self.pool(x, graph)), torch.randint(0, 10, (16,)))


class Diffusion(nn.Module):
    """A diffusion model's UNet on images of one of several aspect ratios a micro-batch (diffusers)."""

    BUCKETS = ((64, 64), (48, 80), (80, 48), (40, 96), (96, 40), (56, 72), (72, 56))

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DModel

        self.model = UNet2DModel(
            in_channels=4,
            out_channels=4,
            block_out_channels=(32, 64, 128),
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
        )

    def loss(self) -> Tensor:
        noisy = torch.randn(4, 4, *random.choice(self.BUCKETS))
        return functional.mse_loss(self.model(noisy, torch.randint(0, 1000, (4,))).sample, torch.randn_like(noisy))


class Speech(nn.Module):
    """Audio of any length, aligned by CTC (transformers' wav2vec 2.0)."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

        config = Wav2Vec2Config(hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=384)
        config.update({"vocab_size": 32, "conv_dim": [64] * 7, "mask_time_prob": 0.0, "layerdrop": 0.1})
        self.model = Wav2Vec2ForCTC(config)

    def loss(self) -> Tensor:
        audio = torch.randn(4, random.randint(8000, 48000))
        return self.model(audio, labels=torch.randint(1, 32, (4, random.randint(5, 20)))).loss


class Reinforcement(nn.Module):
    """Answers of any length, generated with a cache that grows, then learnt from (transformers)."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(vocab_size=500, hidden_size=128, intermediate_size=352, num_hidden_layers=4)
        config.update({"num_attention_heads": 4, "num_key_value_heads": 4})
        self.model = LlamaForCausalLM(config)

    def loss(self) -> Tensor:
        tokens = torch.randint(0, 500, (8, random.randint(16, 64)))
        with torch.no_grad():
            answers = self.model.generate(tokens, max_new_tokens=random.randint(8, 40), do_sample=True, pad_token_id=0)
            before = torch.log_softmax(self.model(answers, use_cache=False).logits[:, :-1], -1)
        after = torch.log_softmax(self.model(answers, use_cache=False).logits[:, :-1], -1)
        chosen = answers[:, 1:, None]
        ratio = (after.gather(2, chosen) - before.gather(2, chosen)).exp()
        advantage = torch.randn(8, 1, 1)
        return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()


class Recurrent(nn.Module):
    """Packed sequences of any length through LSTMs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(2000, 128), nn.Linear(256, 2000)
        self.lstm = nn.LSTM(128, 128, num_layers=2, bidirectional=True)

    def loss(self) -> Tensor:
        sequences = [torch.randint(0, 2000, (random.randint(10, 200),)) for _ in range(8)]
        packed = rnn.pack_sequence([self.embedding(sequence) for sequence in sequences], enforce_sorted=False)
        outputs, _ = rnn.pad_packed_sequence(self.lstm(packed)[0])
        return functional.cross_entropy(self.head(outputs).flatten(0, 1), rnn.pad_sequence(sequences).flatten())


class Recommender(nn.Module):
    """Bags of any number of ids, of which only those that occur get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 64) for rows in (20000, 50000, 5000, 1000))
        self.top = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))

    def pooled(self, table: nn.Embedding, rows: int) -> Tensor:
        counts = torch.randint(1, random.randint(4, 40), (rows,))
        ids, place = torch.randint(0, table.num_embeddings, (int(counts.sum()),)).unique(return_inverse=True)
        bags = torch.repeat_interleave(torch.arange(rows), counts)
        return torch.zeros(rows, 64).index_add(0, bags, table(ids)[place])

    def loss(self) -> Tensor:
        rows = 512
        features = torch.cat([self.pooled(table, rows) for table in self.tables], 1)
        return functional.binary_cross_entropy_with_logits(self.top(features)[:, 0], torch.rand(rows))


class Meta(nn.Module):
    """Any number of inner steps, differentiated through (MAML)."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(256, 256) / 16) for _ in range(4))

    @staticmethod
    def apply(weights: list[Tensor], x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.tanh(x @ weight)
        return x

    def loss(self) -> Tensor:
        weights = list(self.weights)
        for _ in range(random.randint(1, 6)):
            x = torch.randn(random.randint(16, 128), 256)
            inner = functional.mse_loss(self.apply(weights, x), x.roll(1, 1))
            steps = torch.autograd.grad(inner, weights, create_graph=True)
            weights = [weight - 0.1 * step for weight, step in zip(weights, steps)]
        x = torch.randn(256, 256)
        return functional.mse_loss(self.apply(weights, x), x.roll(1, 1))


class Crops(nn.Module):
    """Two global crops and any number of local ones through one network; a teacher that follows (DINO)."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = self.network(), self.network()
        self.teacher.requires_grad_(False)

    @staticmethod
    def network() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in ((3, 32), (32, 64), (64, 128), (128, 256)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.GELU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1024))

    def loss(self) -> Tensor:
        with torch.no_grad():
            for old, new in zip(self.teacher.parameters(), self.student.parameters()):
                old.lerp_(new, 0.01)
        whole = torch.randn(8, 3, 112, 112)
        with torch.no_grad():
            wanted = self.teacher(whole).softmax(-1)
        sides = random.choices((48, 56, 64), k=random.randint(2, 8))
        views = [self.student(crop) for crop in [whole, *(torch.randn(8, 3, side, side) for side in sides)]]
        return torch.stack([-(wanted * view.log_softmax(-1)).sum(-1).mean() for view in views]).mean()


class Trees(nn.Module):
    """Each example is a tree of its own, built bottom up: nothing but the sizes of single requests repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.join, self.head = nn.Embedding(500, 256), nn.Linear(512, 1024), nn.Linear(256, 5)

    def tree(self, leaves: int) -> Tensor:
        if leaves == 1:
            return self.leaf(torch.randint(0, 500, (32,)))
        left = random.randint(1, leaves - 1)
        gates = self.join(torch.cat([self.tree(left), self.tree(leaves - left)], 1)).chunk(4, 1)
        return torch.sigmoid(gates[0]) * torch.tanh(gates[1]) + torch.sigmoid(gates[2]) * torch.tanh(gates[3])

    def loss(self) -> Tensor:
        roots = torch.cat([self.tree(random.randint(4, 40)) for _ in range(4)])
        return functional.cross_entropy(self.head(roots), torch.randint(0, 5, (len(roots),)))


class Supernet(nn.Module):
    """Depth and widths of each step are drawn: a slice of each weight takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ParameterList(nn.Parameter(torch.randn(1024, 256) / 16) for _ in range(8))
        self.down = nn.ParameterList(nn.Parameter(torch.randn(256, 1024) / 32) for _ in range(8))

    def loss(self) -> Tensor:
        x = wanted = torch.randn(512, 256)
        for up, down in list(zip(self.up, self.down))[: random.randint(3, 8)]:
            width = random.choice((256, 384, 512, 768, 1024))
            x = x + functional.linear(functional.gelu(functional.linear(x, up[:width])), down[:, :width])
        return functional.mse_loss(x, wanted.roll(1, 0))


class Points(nn.Module):
    """Clouds of any number of points: neighbours by distance, of which the matrix is as large as it gets."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (6, 64, 128, 256)
        self.layers = nn.ModuleList(nn.Linear(2 * old, new) for old, new in zip(sizes, sizes[1:]))
        self.head = nn.Linear(256, 40)

    def loss(self) -> Tensor:
        clouds = []
        for _ in range(2):
            x = torch.randn(random.randint(256, 1024), 6)
            for layer in self.layers:
                near = torch.cdist(x, x).topk(8, largest=False).indices
                x = functional.relu(layer(torch.cat([x[near], x[:, None].expand(-1, 8, -1)], -1))).amax(1)
            clouds.append(x.amax(0))
        return functional.cross_entropy(self.head(torch.stack(clouds)), torch.randint(0, 40, (2,)))


FAMILIES: dict[str, Any] = {
    "maskrcnn": lambda: Detection("maskrcnn_resnet50_fpn"),
    "fasterrcnn": lambda: Detection("fasterrcnn_mobilenet_v3_large_fpn"),
    "fcos": lambda: Detection("fcos_resnet50_fpn"),
    "graphs": Graphs,
    "diffusion": Diffusion,
    "speech": Speech,
    "reinforcement": Reinforcement,
    "recurrent": Recurrent,
    "recommender": Recommender,
    "meta": Meta,
    "crops": Crops,
    "trees": Trees,
    "supernet": Supernet,
    "points": Points,
}
