"""Training with several threads on the device: each case keeps its threads and streams apart as PyTorch asks for.

    threaded_training.py CASE [--iterations N] [--width W] [--limit BYTES] [--fill BYTES] [--device cpu]

    loops-N     N models, each trained by a thread of its own, on a stream of its own
    loader      a thread copies batches to the device on a side stream, the main thread trains on them
    checkpoint  a thread copies the weights to the host on a side stream while training goes on
    optimizers  one thread trains two models, their optimizers step in two threads, on streams of their own
    backward    one thread has the forward passes, several threads call the backward passes at the same time
    captures    a thread captures and replays graphs while another one trains

Sequences have other lengths in each iteration, so that memory moves. Prints one line of JSON: losses, a digest of what
was trained and copied, peaks. The same seed gives the same result, whatever the order in which threads come to run.
--limit: bytes that the process may have; --fill: bytes that are to be left on the device (the rest is taken).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCAB = 512


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(self.norm(x)).chunk(3, -1)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        x = x + scores.softmax(-1) @ value
        return x + self.down(functional.gelu(self.up(x)))


class Model(nn.Module):
    """A small language model; its initial weights are its seed's."""

    def __init__(self, width: int, layers: int, seed: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCAB)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Case:
    """What the cases share: settings, models, batches, and what is to be compared."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.iterations: int = arguments.iterations
        self.width: int = arguments.width
        self.device = torch.device(arguments.device)
        self.cuda = self.device.type == "cuda"
        self.losses: dict[str, list[float]] = {}
        self.digest = hashlib.sha256()

    def model(self, seed: int) -> tuple[Model, torch.optim.Optimizer]:
        model = Model(self.width, 2 + seed % 2, seed).to(self.device)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def batches(self, seed: int) -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(1000 + seed)
        for _ in range(self.iterations):
            length = int(torch.randint(self.width // 4, self.width // 2, (1,), generator=generator))
            yield torch.randint(0, VOCAB, (16, length), generator=generator)

    def stream(self) -> Any:
        return torch.cuda.Stream() if self.cuda else None

    def note(self, name: str, loss: torch.Tensor) -> None:
        self.losses.setdefault(name, []).append(loss.item())

    def add(self, tensors: Any) -> None:
        for tensor in tensors:
            self.digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), ... at the same time; raises what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:  # a thread's failure is the program's
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def loops(case: Case, count: int) -> None:
    trained: list[Any] = [None] * count

    def train(index: int) -> None:
        with torch.cuda.stream(case.stream()):
            model, optimizer = case.model(7 + index)
            for batch in case.batches(index):
                loss = model.loss(batch.to(case.device))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                case.note(f"loop {index}", loss)
            trained[index] = model

    in_threads(count, train)
    for model in trained:
        case.add(model.parameters())


def loader(case: Case) -> None:
    loaded: queue.Queue[Any] = queue.Queue(maxsize=2)

    def load() -> None:
        side = case.stream()
        for batch in case.batches(1):
            with torch.cuda.stream(side):
                tokens = batch.pin_memory().to(case.device, non_blocking=True) if case.cuda else batch.clone()
                noise = torch.ones(tokens.shape, dtype=torch.long, device=case.device).cumsum(-1) % 3
                tokens = (tokens + noise) % VOCAB
            loaded.put((tokens, side.record_event() if case.cuda else None))
        loaded.put(None)

    thread = threading.Thread(target=load)
    thread.start()
    model, optimizer = case.model(7)
    while (item := loaded.get()) is not None:
        tokens, ready = item
        if ready is not None:
            torch.cuda.current_stream().wait_event(ready)
            tokens.record_stream(torch.cuda.current_stream())
        loss = model.loss(tokens)
        del item, tokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        case.note("loss", loss)
    thread.join()
    case.add(model.parameters())


def checkpoint(case: Case) -> None:
    taken: queue.Queue[Any] = queue.Queue()
    saved: list[list[torch.Tensor]] = []

    def save() -> None:
        side = case.stream()
        while (item := taken.get()) is not None:
            weights, ready = item
            with torch.cuda.stream(side):
                if ready is not None:
                    side.wait_event(ready)
                    for weight in weights:
                        weight.record_stream(side)
                saved.append([weight.to("cpu", non_blocking=True) for weight in weights])
            del item, weights  # while the copies run
            if side is not None:
                side.synchronize()

    thread = threading.Thread(target=save)
    thread.start()
    model, optimizer = case.model(7)
    for iteration, batch in enumerate(case.batches(1)):
        loss = model.loss(batch.to(case.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        case.note("loss", loss)
        if iteration % 2 == 1:
            weights = [parameter.detach().clone() for parameter in model.parameters()]
            taken.put((weights, torch.cuda.current_stream().record_event() if case.cuda else None))
            del weights
    taken.put(None)
    thread.join()
    for weights in saved:
        case.add(weights)
    case.add(model.parameters())


def optimizers(case: Case) -> None:
    models = [case.model(7), case.model(8)]
    streams = [case.stream() for _ in models]

    def step(main: Any, index: int) -> None:
        with torch.cuda.stream(streams[index]):
            if main is not None:
                streams[index].wait_stream(main)
            models[index][1].step()

    for batches in zip(case.batches(1), case.batches(2)):
        for index, ((model, _), batch) in enumerate(zip(models, batches)):
            loss = model.loss(batch.to(case.device))
            loss.backward()
            case.note(f"loss {index}", loss)
        main = torch.cuda.current_stream() if case.cuda else None
        in_threads(len(models), functools.partial(step, main))
        for (_, optimizer), stream in zip(models, streams):
            if main is not None:
                main.wait_stream(stream)
            optimizer.zero_grad()
    for model, _ in models:
        case.add(model.parameters())


def backward_of(losses: list[torch.Tensor], index: int) -> None:
    losses[index].backward()


def backward(case: Case) -> None:
    models = [case.model(7 + index) for index in range(4)]
    for batches in zip(*(case.batches(index) for index in range(len(models)))):
        losses = [model.loss(batch.to(case.device)) for (model, _), batch in zip(models, batches)]
        in_threads(len(losses), functools.partial(backward_of, losses))
        for index, (_, optimizer) in enumerate(models):
            case.note(f"loss {index}", losses[index])
            optimizer.step()
            optimizer.zero_grad()
    for model, _ in models:
        case.add(model.parameters())


def captures(case: Case) -> None:
    over = threading.Event()
    wrong: list[str] = []

    def capture() -> None:
        side = case.stream()
        if side is None:
            return
        with torch.cuda.stream(side):
            weight = torch.ones(256, 256, device=case.device)
            float((weight @ weight).sum())  # cuBLAS makes its workspace
        count = 0
        while not over.is_set():
            size = 64 + 32 * (count % 5)
            source = torch.full((size, 256), 2.0, device=case.device)
            side.wait_stream(torch.cuda.current_stream())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                result = (source @ weight).relu() + 1
            graph.replay()
            if not bool((result == 513).all()):
                wrong.append(f"capture {count}")
            del graph, result, source
            count += 1

    def train() -> None:
        with torch.cuda.stream(case.stream()):
            model, optimizer = case.model(7)
            for batch in case.batches(1):
                loss = model.loss(batch.to(case.device))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                case.note("loss", loss)
            case.add(model.parameters())

    def both(index: int) -> None:
        if index == 1:
            return capture()
        try:
            train()
        finally:
            over.set()

    in_threads(2, both)
    assert not wrong, wrong


def take_device(left: int) -> int:
    """Takes what the device has beyond `left` bytes, past torch; bytes."""
    torch.cuda.init()
    cudart = ctypes.CDLL("libcudart.so.13")
    taken = torch.cuda.mem_get_info()[0] - left
    pointer = ctypes.c_void_p()
    if taken > 0 and cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(taken)) != 0:
        raise RuntimeError(f"cudaMalloc of {taken} bytes failed")
    return max(taken, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--fill", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    case = Case(arguments)
    case.stream()  # torch makes its streams here: two threads that make them at the same time hang under its sanitizer
    if case.cuda and arguments.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(arguments.limit / total)
    if case.cuda and arguments.fill:
        take_device(arguments.fill)
    cases = {
        "loader": loader,
        "checkpoint": checkpoint,
        "optimizers": optimizers,
        "backward": backward,
        "captures": captures,
    }
    if arguments.case.startswith("loops-"):
        loops(case, int(arguments.case.removeprefix("loops-")))
    else:
        cases[arguments.case](case)
    result: dict[str, Any] = {"losses": dict(sorted(case.losses.items())), "digest": case.digest.hexdigest()[:16]}
    if case.cuda:
        torch.cuda.synchronize()
        result["peak_allocated"] = torch.cuda.max_memory_allocated()
        result["peak_reserved"] = torch.cuda.max_memory_reserved()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
