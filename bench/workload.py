"""What `train_gpt.py` trains: a GPT with dense or mixture-of-experts blocks, in plain PyTorch, and its batches."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class WorkloadConfig:
    """Sizes of one workload. Lengths in tokens."""

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    ffn: int = 352
    vocab: int = 1024
    sequence: int = 128
    micro_batch: int = 4
    accumulation: int = 4
    experts: int = 0
    top_k: int = 2
    recompute: str = "none"  # none, half (every second layer), full
    variable_length: bool = False
    dtype: str = "float32"
    router_drift: float = 0.0  # of the routers' biases, per iteration: see RoutingShift
    collapse_from: int = -1  # the iteration from which on one expert of each layer takes most tokens; -1: none

    @property
    def shifts_routing(self) -> bool:
        return self.router_drift != 0.0 or self.collapse_from >= 0


_FILE = Path(__file__).resolve().parent / "workloads" / "gpt.json"
PRESETS = {name: WorkloadConfig(**sizes) for name, sizes in json.loads(_FILE.read_text()).items()}


class RmsNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, hidden: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    """Causal self-attention with one fused projection."""

    def __init__(self, config: WorkloadConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden, bias=False, dtype=dtype, device=device)
        self.out = nn.Linear(config.hidden, config.hidden, bias=False, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, hidden))


class SwiGlu(nn.Module):
    """Gated feed-forward block; also one expert."""

    def __init__(self, config: WorkloadConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.ffn, bias=False, dtype=dtype, device=device)
        self.up = nn.Linear(config.hidden, config.ffn, bias=False, dtype=dtype, device=device)
        self.down = nn.Linear(config.ffn, config.hidden, bias=False, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    """Dropless top-k routing with a Python loop over experts: every expert's batch has a size of its own."""

    def __init__(self, config: WorkloadConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.top_k = config.top_k
        self.router = nn.Linear(config.hidden, config.experts, bias=False, dtype=dtype, device=device)
        self.experts = nn.ModuleList(SwiGlu(config, dtype, device) for _ in range(config.experts))
        self.bias: Tensor | None = None  # of the router's logits, where the routing shifts

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        logits = self.router(tokens).float()
        if self.bias is not None:
            logits = logits + self.bias
        weights, chosen = torch.topk(functional.softmax(logits, dim=-1), self.top_k, dim=-1)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            weighted = expert(tokens[rows]) * weights[rows, slot].unsqueeze(-1).to(tokens.dtype)
            result = result.index_add(0, rows, weighted)
        return result.view_as(x)


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, config: WorkloadConfig, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.norm1 = RmsNorm(config.hidden, dtype, device)
        self.attention = Attention(config, dtype, device)
        self.norm2 = RmsNorm(config.hidden, dtype, device)
        feed_forward = MixtureOfExperts if config.experts else SwiGlu
        self.feed_forward = feed_forward(config, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Gpt(nn.Module):
    """Decoder with tied embedding; returns the mean next-token loss."""

    def __init__(self, config: WorkloadConfig, device: torch.device) -> None:
        super().__init__()
        dtype = getattr(torch, config.dtype)
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.hidden, dtype=dtype, device=device)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(config, dtype, device) for _ in range(config.layers))
        self.norm = RmsNorm(config.hidden, dtype, device)
        if config.shifts_routing:
            self.routing_bias = torch.zeros(config.layers, config.experts, device=device)
            for layer, block in enumerate(self.blocks):
                block.feed_forward.bias = self.routing_bias[layer]

    def shift_routing(self, bias: Tensor) -> None:
        """Sets the biases of all routers, (layers, experts)."""
        self.routing_bias.copy_(bias)

    def _recomputed(self, layer: int) -> bool:
        return self.config.recompute == "full" or (self.config.recompute == "half" and layer % 2 == 0)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens[:, :-1])
        for layer, block in enumerate(self.blocks):
            if self._recomputed(layer) and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class RoutingShift:
    """How the routing of a mixture of experts changes while it trains, the same for the same seed.

    Logits of a fresh router have a standard deviation of about 0.6. Drift: each expert's bias moves by `router_drift`
    times a number of its own (standard normal) every iteration, so that loads become more and more unequal. Collapse:
    from iteration `collapse_from` on one expert of each layer is among every token's choice.
    """

    COLLAPSED = 10.0

    def __init__(self, config: WorkloadConfig, seed: int) -> None:
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        self.directions = torch.randn(config.layers, config.experts, generator=generator)

    def bias(self, iteration: int) -> Tensor:
        """(layers, experts), on the CPU."""
        bias = self.directions * (self.config.router_drift * iteration)
        if 0 <= self.config.collapse_from <= iteration:
            for layer in range(self.config.layers):
                bias[layer, layer % self.config.experts] += self.COLLAPSED
        return bias


class MasterWeightAdamW:
    """AdamW over float32 master copies of the model's parameters, as mixed-precision trainers keep them."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.masters = [nn.Parameter(p.detach().clone().float()) for p in self.parameters]
        self.adamw = torch.optim.AdamW(self.masters, lr=learning_rate)

    def step(self) -> None:
        for parameter, master in zip(self.parameters, self.masters):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        self.adamw.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters):
                parameter.copy_(master)
                master.grad = None


def token_batches(config: WorkloadConfig, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Endless micro-batches of token ids, the same for the same seed; the length varies if the workload's does."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        length = config.sequence
        if config.variable_length:
            shortest = max(config.sequence // 4, 1)
            length = int(torch.randint(shortest, config.sequence + 1, (1,), generator=generator))
        shape = (config.micro_batch, length + 1)
        tokens = torch.randint(0, config.vocab, shape, generator=generator)
        yield tokens.to(device, non_blocking=True)
