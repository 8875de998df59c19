"""Cases of test_apply_cuda.py: apply_cases.py CASE [DEVICE...], by default cuda:0. Plain torch, deterministic; prints
what was found, by name, as JSON: each must be true.

Gradients and weights of a changed model are compared, bit for bit, with those of the same model as it was.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stalloc
from stalloc.train.changes import state, transfers
from stalloc.train.marking import bus as measured

DEVICES = [torch.device(name) for name in sys.argv[2:] or ["cuda:0"]]
DEVICE = DEVICES[0]
ON_GPU = DEVICE.type == "cuda"
MIB = 1 << 20


@dataclasses.dataclass
class Held:
    tensor: Any


class Layer(nn.Module):
    """Takes its input in whatever holds it. Draws a mask, and random numbers of its own."""

    def __init__(self, take: Callable[..., Tensor] = lambda x: x, width: int = 64) -> None:
        super().__init__()
        self.take = take
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        x = self.take(*args, **kwargs)
        return x + self.drop(self.down(self.up(x).relu())) * torch.rand(x.shape[-1], device=x.device)


class Model(nn.Module):
    """`call`: how its layers are called."""

    def __init__(self, make: Callable[[], Any] = Layer, call: Any = lambda layer, x: layer(x), layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make() for _ in range(layers))
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.call(layer, x)
        return x.float().pow(2).mean()


def batch(rows: int = 32, width: int = 64) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(5)).to(DEVICE).requires_grad_()


def trained(model: Any, around: Any = None, x: Any = None) -> list[Tensor]:
    """The loss and all gradients. Random numbers that come between the passes are drawn, too."""
    torch.manual_seed(7)
    x = batch() if x is None else x
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=around == "autocast"):
        loss = model(x)
    for device in DEVICES:
        torch.rand(1000, device=device)
    loss.backward()
    found = [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    model.zero_grad()
    return [each.cpu() for each in found]


def same(mine: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(mine) == len(theirs) and all(torch.equal(one, other) for one, other in zip(mine, theirs))


def apply(model: Any, optimizer: Any = None, **chosen: Any) -> Any:
    every = {"recompute": [], "offload": [], "offload_state": False, **chosen}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.json"
        path.write_text(json.dumps({"version": 1, "chosen": every}))
        stalloc.apply(path, model, optimizer)
    return model


def layers_of(model: Model) -> list[str]:
    return [f"layers.{i}" for i in range(len(model.layers))]


CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "positional": (Layer, lambda layer, x: layer(x)),
    "keywords": (Layer, lambda layer, x: layer(x=x)),
    "nested": (lambda: Layer(lambda held: held["x"][0][0]), lambda layer, x: layer(held={"x": [(x,)]})),
    "object": (lambda: Layer(lambda held: held.tensor), lambda layer, x: layer(held=Held(x))),
    "closure": (lambda: Layer(lambda get: get()), lambda layer, x: layer(get=lambda: x)),
}


def recompute() -> dict[str, bool]:
    found = {}
    for name, (make, call) in CALLS.items():
        for around in ("", "autocast"):
            model = Model(make, call).to(DEVICE)
            expected = trained(copy.deepcopy(model), around)
            apply(model, recompute=["layers.0", "layers.2"])
            found[f"{name} {around}"] = same(trained(model, around), expected)
    return found


def several_devices() -> dict[str, bool]:
    """Of one module that draws on both: on that of its weights, and on one that none of its tensors is on."""

    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Layer().to(DEVICES[0]), Layer().to(DEVICES[-1])

        def forward(self, *, x: Tensor) -> Tensor:
            noise = torch.rand(64, device=DEVICES[-1]).to(DEVICES[0])
            return self.second((self.first(x) * noise).to(DEVICES[-1])).to(DEVICES[0])

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(64, 64, device=DEVICES[0])

        def forward(self, *, x: Tensor) -> Tensor:
            return self.scale(x * torch.rand(64, device=DEVICES[-1]).to(DEVICES[0]))

    found = {}
    for kind in (Spread, Noisy):
        model = Model(kind, lambda layer, x: layer(x=x))
        expected = trained(copy.deepcopy(model))
        found[kind.__name__] = same(trained(apply(model, recompute=layers_of(model))), expected)
    return found


class Still(Layer):
    """Draws nothing: torch.compile draws other numbers on a GPU where it recomputes."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(x).relu())


class Probe(nn.Module):
    """What it gives on tells which mask it drew."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.rand(64) + 1), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.weight * x).exp()


class Masking(nn.Module):
    """The gradient of its weight is what it has returned, if the mask is the same in both passes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x) * self.weight


class Masks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Masking() for _ in range(14))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x=x) for layer in self.layers]


def compiled() -> dict[str, bool]:
    """Blocks one by one, and the model as a whole. With aot_eager torch draws other numbers for what is recomputed than
    it does uncompiled, by its own checkpoint, too: there the masks of both passes are compared."""
    found = {}
    for chosen, backend in (("recompute", "eager"), ("offload", "aot_eager")):
        for whole in (False, True):
            model = Model(layers=14).to(DEVICE)
            expected = trained(copy.deepcopy(model))
            graphs = _compile(apply(model, **{chosen: layers_of(model)}), whole, backend)
            found[f"{chosen} {whole}"] = same(trained(model), expected)
            found[f"{chosen} {whole}: {graphs()} graphs"] = graphs() <= 2
    for whole in (False, True):
        masks = Masks().to(DEVICE)
        graphs = _compile(apply(masks, recompute=[f"layers.{i}" for i in range(14)]), whole, "aot_eager")
        x = batch(1)
        given = masks(x)
        torch.rand(1000, device=DEVICE)
        torch.autograd.backward([each.sum() for each in given])
        weights = [layer.weight.grad for layer in masks.layers]
        found[f"masks {whole}"] = all(torch.equal(one[0], grad) for one, grad in zip(given, weights))
        found[f"masks {whole} differ"] = not torch.equal(given[0], given[1])
        found[f"masks {whole}: {graphs()} graphs"] = graphs() <= 2
    return found


def _compile(model: Any, whole: bool, backend: str) -> Callable[[], int]:
    """How many graphs that made so far."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for module in [model] if whole else model.layers:
        module.compile(backend=backend)
    return lambda: int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


class Masked(nn.Module):
    """Saves what is expanded, transposed, a part of something, and conjugated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        mask = (x[:1] > 0).expand(len(x), 64).float()
        y = (x * mask).t() * x.t()
        z = torch.complex(y, y).conj() * torch.complex(y, y)[:, :2].sum()
        return torch.softmax(z.abs().t() @ self.weight, -1) + x[:0].pow(2).sum()


def offload() -> dict[str, bool]:
    found = {}
    for name, make in {"layers": Layer, "masked": Masked}.items():
        for ways in (["offload"], ["offload", "recompute"]):
            model = Model(make).to(DEVICE)
            expected = trained(copy.deepcopy(model))
            apply(model, **{way: layers_of(model) for way in ways})
            found[f"{name} {' '.join(ways)}"] = same(trained(model), expected)
    return found | _offloaded_bytes() | _on_another_stream()


def _offloaded_bytes() -> dict[str, bool]:
    """Between the passes the device has none of what the layers saved."""
    model = Model(lambda: Layer(width=512), layers=4).to(DEVICE)
    held = []
    for module in (model, apply(copy.deepcopy(model), offload=layers_of(model))):
        before = torch.cuda.memory_allocated() if ON_GPU else 0
        loss = module(batch(2048, 512))
        held.append((torch.cuda.memory_allocated() if ON_GPU else 1 - len(held)) - before)
        loss.backward()
    return {f"of {held[0] // MIB} MiB {held[1] // MIB} stay": held[1] < held[0] // 4}


def _on_another_stream() -> dict[str, bool]:
    """What was allocated on one stream is used and offloaded on another, and is allocated anew at once."""
    if not ON_GPU:
        return {}
    model = Model(lambda: Layer(width=512)).to(DEVICE)
    x = batch(4096, 512)

    def run(module: Any) -> list[Tensor]:
        torch.manual_seed(7)
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        middle = x * 2
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            loss = module(middle)
        del middle
        for _ in range(8):
            torch.full((4096, 512), float("nan"), device=DEVICE)
        main.wait_stream(side)
        return [each.cpu() for each in torch.autograd.grad(loss, list(module.parameters()))]

    expected = run(copy.deepcopy(model))
    torch.cuda.synchronize()
    return {"another stream": all(same(run(apply(model, offload=layers_of(model))), expected) for _ in range(5))}


LONG = 50_000_000  # cycles: some hundredths of a second


def wide() -> Model:
    torch.manual_seed(2)
    return Model(lambda: Layer(width=512), layers=12).to(DEVICE)


def _late(lane: Any) -> None:
    """Copies in both directions wait from now on, so that whatever does not wait for them finds other bytes."""
    if ON_GPU:
        for stream in (lane._out, lane._back):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LONG)


def _poisoned() -> None:
    for _ in range(8):
        torch.full((4096, 2048), float("nan"), device=DEVICE)


def overlap() -> dict[str, bool]:
    model = wide()
    chosen = apply(copy.deepcopy(model), offload=["layers.0", "layers.2", "layers.3.up", "layers.11"])
    every = apply(copy.deepcopy(model), offload=layers_of(model))
    lane, x = transfers.lane_of(DEVICE), batch(4096, 512)
    expected = trained(model, x=x)
    found, sizes = {}, []
    for name, module in {"some": chosen, "all": every}.items():
        right = []
        for _ in range(4):
            _late(lane)
            right.append(same(_late_trained(module, x, lane), expected))
            sizes.append(lane.pool.size)
        found[name] = all(right)
    found["the pool is taken once"] = sizes[0] == sizes[3] and sizes[4] == sizes[7]
    found["the host does not wait"] = _without_waiting(every, x)
    return found | _lower_peak(model, every, x) | _other_passes(model, every, x, lane) | _captured(model, every)


def _late_trained(model: Any, x: Any, lane: Any) -> list[Tensor]:
    torch.manual_seed(7)
    loss = model(x)
    _poisoned()
    torch.rand(1000, device=DEVICE)
    _late(lane)
    loss.backward()
    _poisoned()
    grads = [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    model.zero_grad()
    return [each.cpu() for each in grads]


def _without_waiting(model: Any, x: Any) -> bool:
    if ON_GPU:
        torch.cuda.set_sync_debug_mode("error")
    try:
        model(x).backward()
    finally:
        if ON_GPU:
            torch.cuda.set_sync_debug_mode("default")
        model.zero_grad()
    return True


def _lower_peak(model: Any, offloaded: Any, x: Any) -> dict[str, bool]:
    if not ON_GPU:
        return {}
    peaks = []
    for module in (model, offloaded):
        trained(module, x=x)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        trained(module, x=x)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    return {f"peak of {peaks[0] // MIB} MiB is {peaks[1] // MIB}": peaks[1] < 0.75 * peaks[0]}


def _other_passes(model: Any, offloaded: Any, x: Any, lane: Any) -> dict[str, bool]:
    """One that has no backward pass, one whose graph has two, and a fresh one that is freed while copies run."""
    gc.collect()
    held = lane.pool.used
    loss = offloaded(x)
    del loss
    _late(lane)
    loss = offloaded(x)
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in offloaded.parameters()]
    offloaded.zero_grad()
    loss.backward()
    again = same(first, [parameter.grad for parameter in offloaded.parameters()])
    offloaded.zero_grad()
    loss = offloaded(x)
    _late(lane)
    del loss
    _poisoned()
    expected = trained(model, x=x)
    lane.give(lane.take(1), None)
    lane.give(lane.take(1), None)
    return {
        "twice": again,
        "after one that was dropped": same(trained(offloaded, x=x), expected),
        "nothing is left": lane.pool.used <= held + 1024,
    }


def _captured(model: Any, offloaded: Any) -> dict[str, bool]:
    """While a graph is captured, what is saved stays."""
    if not ON_GPU:
        return {}
    found = []
    for module in (copy.deepcopy(model).eval(), copy.deepcopy(offloaded).eval()):
        static = batch(64, 512).detach().requires_grad_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.autograd.grad(module(static), static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.manual_seed(3)
        with torch.cuda.graph(graph):
            (grad,) = torch.autograd.grad(module(static), static)
        torch.cuda.manual_seed(3)
        graph.replay()
        found.append(grad.cpu())
    return {"captured": torch.equal(*found)}


def bus() -> dict[str, bool]:
    """Measured as after a trace: faster than a disk, slower than the device's own memory."""
    torch.empty(1, device=DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank00000.bus.json"
        measured.measure(path, torch)
        speeds = json.loads(path.read_text())
    names = [f"{direction}{both}" for direction in ("to_host", "to_device") for both in ("", "_with_both")]
    return {name: 1e9 < speeds[name] < 1e12 for name in names} | {
        "all": sorted(speeds) == sorted([*names, "host_bytes"]),
        "host_bytes": speeds["host_bytes"] > 1 << 28,
    }


class Shampoo(torch.optim.Optimizer):
    """State as others than torch's have it: nested, with numbers and words, and tensors that share their bytes."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            mine = self.state[parameter]
            if not mine:
                flat = torch.zeros(2, *parameter.shape, device=parameter.device)
                factors = [{"left": torch.eye(len(parameter), device=parameter.device), "rank": 3}, ("two", None)]
                mine.update(name="shampoo", factors=factors, first=flat[0], second=flat[1], itself=parameter)
            mine["factors"][0]["left"].mul_(0.5)
            mine["second"].add_(parameter.grad)
            parameter.sub_(mine["second"] * mine["factors"][0]["left"].sum(), alpha=0.01)


OPTIMIZERS = {
    "shampoo": Shampoo,
    "adamw": lambda p: torch.optim.AdamW(p, fused=ON_GPU),
    "capturable": lambda p: torch.optim.AdamW(p, capturable=ON_GPU, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=2),
}


def spread(model: Model, on_host: bool) -> Model:
    """Layers by turns on the devices; the last one on the host, if so."""
    for i, layer in enumerate(model.layers[:-1] if on_host else model.layers):
        layer.to(DEVICES[i % len(DEVICES)])
    model.call = lambda layer, x: layer(x.to(layer.up.weight.device)).to(DEVICE)
    return model


def steps(model: Any, optimizer: Any, count: int, closure: bool) -> None:
    for i in range(count):
        torch.manual_seed(i)

        def loss_of() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(batch())
            loss.backward()
            return loss

        if closure:
            optimizer.step(loss_of)
        else:
            loss_of()
            optimizer.step()


def optimizer_state() -> dict[str, bool]:
    found = {}
    for name, make in OPTIMIZERS.items():
        # The state of this one is of all parameters, on one device.
        model = Model().to(DEVICE) if name == "lbfgs" else spread(Model(), on_host=name != "capturable")
        plain = copy.deepcopy(model)
        optimizer, other = make(model.parameters()), make(plain.parameters())
        apply(model, optimizer, offload_state=True)
        for each, its in ((model, optimizer), (plain, other)):
            steps(each, its, 2, name == "lbfgs")
            saved = copy.deepcopy(its.state_dict())
            steps(each, its, 2, name == "lbfgs")
            its.load_state_dict(saved)
            steps(each, its, 2, name == "lbfgs")
        found[name] = same(*([p.detach().cpu() for p in each.parameters()] for each in (model, plain)))
        found[f"{name} is away"] = state._movable(optimizer) == []
        found[f"{name} was there"] = not ON_GPU or bool(state._movable(other))
    return found | _fails()


def _fails() -> dict[str, bool]:
    """There is memory for a part of the state alone: it stays on the host, and can be taken later."""
    if not ON_GPU:
        return {}
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    apply(nn.Module(), optimizer, offload_state=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 100 * MIB) / total)
    before = torch.cuda.memory_allocated()
    failed = False
    try:
        optimizer.step()
    except torch.OutOfMemoryError:
        failed = True
    found = {
        "no memory: it fails": failed,
        "no memory: nothing has moved": torch.cuda.memory_allocated() == before,
        "no memory: all is away": state._movable(optimizer) == [],
    }
    torch.cuda.set_per_process_memory_fraction(1.0)
    optimizer.step()
    counts = {float(each["step"]) for each in optimizer.state.values()}
    return found | {"no memory: later it goes on": counts == {2.0}}


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    print(json.dumps(globals()[sys.argv[1]]()))
