"""Trains in loops that leave things to the next iteration: outputs in variables, batches fetched ahead, carried states.

    STALLOC_DEVICE=cpu STALLOC_MODE=Trace STALLOC_MODEL_INFO_PATH=traces/tutorial OMP_NUM_THREADS=1 \\
        stalloc run bench/unseen/loops.py tutorial --iterations 20
    python bench/unseen/loops.py --list

To be replayed by replay.py, as train.py's. Iterations are alike, and loops have no marks, unless said otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

import stalloc

# A loop yields one loss an iteration.
Losses = Iterator[Tensor]


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, hidden), nn.GELU()]
    layers += [nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers)


def stepped(optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def tutorial(iterations: int) -> Losses:
    """Output, loss and batch stay in their variables until the next iteration replaces them."""
    model = perceptron(256, 1024, 4096)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(iterations):
        data, target = torch.randn(512, 256), torch.randint(0, 4096, (512,))
        optimizer.zero_grad()
        output = model(data)
        loss = functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        yield loss


def language(iterations: int) -> Losses:
    """Logits and hidden states of a language model stay."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model, embed, head = nn.TransformerEncoder(layer, 4), nn.Embedding(2048, 128), nn.Linear(128, 2048)
    optimizer = torch.optim.AdamW([*model.parameters(), *embed.parameters(), *head.parameters()])
    for _ in range(iterations):
        tokens = torch.randint(0, 2048, (8, 64))
        optimizer.zero_grad()
        hidden = model(embed(tokens))
        logits = head(hidden)
        loss = functional.cross_entropy(logits.view(-1, 2048), tokens.view(-1))
        loss.backward()
        optimizer.step()
        yield loss


def images(iterations: int) -> Losses:
    """A classifier that counts what it got right."""
    convolutions = [nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 1000))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    right = 0
    for _ in range(iterations):
        batch, labels = torch.randn(32, 3, 48, 48), torch.randint(0, 1000, (32,))
        outputs = model(batch)
        loss = functional.cross_entropy(outputs, labels)
        _, predicted = outputs.max(1)
        right += int(predicted.eq(labels).sum())
        yield stepped(optimizer, loss)


def features(iterations: int) -> Losses:
    """The old features are there while the new ones are made, at the peak."""
    frozen = nn.ModuleList(nn.Linear(64, 2048) for _ in range(4))
    head = nn.Linear(2048, 8)
    optimizer = torch.optim.SGD(head.parameters(), 0.1)
    for _ in range(iterations):
        batch = torch.randn(512, 64)
        with torch.no_grad():
            found = [layer(batch) for layer in frozen]
        loss = torch.stack([head(feature).square().mean() for feature in found]).sum()
        yield stepped(optimizer, loss)


def history(iterations: int) -> Losses:
    """The outputs of the last three iterations are kept."""
    model = perceptron(256, 1024, 2048)
    optimizer = torch.optim.AdamW(model.parameters())
    last: deque[Tensor] = deque(maxlen=3)
    for _ in range(iterations):
        output = model(torch.randn(512, 256))
        last.append(output.detach())
        loss = torch.stack([functional.mse_loss(output, old) for old in last]).sum() + output.square().mean()
        yield stepped(optimizer, loss)


def prefetch(iterations: int) -> Losses:
    """The next batch is there before this one is used."""
    model = perceptron(1024, 1024, 512)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    following = torch.randn(1024, 1024)
    for _ in range(iterations):
        batch, following = following, torch.randn(1024, 1024)
        loss = model(batch).square().mean()
        yield stepped(optimizer, loss)


def recurrent(iterations: int) -> Losses:
    """An LSTM's state goes from one iteration to the next."""
    cell, head = nn.LSTM(256, 512, 2, batch_first=True), nn.Linear(512, 1000)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    state: Optional[tuple[Tensor, ...]] = None
    for _ in range(iterations):
        output, state = cell(torch.randn(32, 24, 256), state)
        state = tuple(part.detach() for part in state)
        scores = head(output)
        loss = functional.cross_entropy(scores.reshape(-1, 1000), torch.randint(0, 1000, (32 * 24,)))
        yield stepped(optimizer, loss)


def persistent(iterations: int) -> Losses:
    """What the first two iterations made stays for good."""
    model = perceptron(256, 1024, 2048)
    optimizer = torch.optim.AdamW(model.parameters())
    kept: list[Tensor] = []
    for iteration in range(iterations):
        output = model(torch.randn(512, 256))
        if iteration == 0:
            kept.append(output.detach())
        if iteration == 1:
            kept += [parameter.detach().clone() for parameter in model.parameters()]
        loss = functional.mse_loss(output, kept[0]) + output.square().mean()
        yield stepped(optimizer, loss)


def teacher(iterations: int) -> Losses:
    """A student and the average of its weights."""
    student, average = perceptron(256, 1024, 4096), perceptron(256, 1024, 4096)
    average.load_state_dict(student.state_dict())
    optimizer = torch.optim.AdamW(student.parameters())
    for _ in range(iterations):
        batch = torch.randn(256, 256)
        with torch.no_grad():
            target = average(batch).softmax(-1)
        logits = student(batch)
        loss = -(target * logits.log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for theirs, ours in zip(average.parameters(), student.parameters()):
                theirs.lerp_(ours, 0.01)
        yield loss


def adversarial(iterations: int) -> Losses:
    """Critic and generator, an optimizer step each in every iteration."""
    generator, critic = perceptron(64, 512, 1024), perceptron(1024, 512, 1)
    generating = torch.optim.RMSprop(generator.parameters())
    judging = torch.optim.RMSprop(critic.parameters())
    for _ in range(iterations):
        real = torch.randn(256, 1024)
        fake = generator(torch.randn(256, 64))
        judged = critic(fake.detach()).mean() - critic(real).mean()
        stepped(judging, judged)
        sample = generator(torch.randn(256, 64))
        loss = -critic(sample).mean()
        yield stepped(generating, loss)


def turns(iterations: int) -> Losses:
    """The critic in every iteration, the generator in every second one; iterations are marked."""
    generator, critic = perceptron(64, 512, 1024), perceptron(1024, 512, 1)
    generating = torch.optim.RMSprop(generator.parameters())
    judging = torch.optim.RMSprop(critic.parameters())
    for iteration in range(iterations):
        stalloc.iteration(iteration)
        real = torch.randn(256, 1024)
        fake = generator(torch.randn(256, 64))
        loss = critic(fake.detach()).mean() - critic(real).mean()
        stepped(judging, loss)
        if iteration % 2 == 1:
            sample = generator(torch.randn(256, 64))
            generated = -critic(sample).mean()
            stepped(generating, generated)
        yield loss


def accumulation(iterations: int) -> Losses:
    """An optimizer step in every second iteration; iterations are marked."""
    model = perceptron(256, 1024, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    for iteration in range(iterations):
        stalloc.iteration(iteration)
        output = model(torch.randn(512, 256))
        loss = output.square().mean() / 2
        loss.backward()
        if iteration % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
        yield loss


def overlapped(iterations: int) -> Losses:
    """A pipeline: while one micro-batch enters, those of the two iterations before are further on."""
    first, second = perceptron(512, 1024, 512), perceptron(512, 1024, 512)
    optimizer = torch.optim.AdamW(second.parameters())
    entered: deque[Tensor] = deque()
    for _ in range(iterations + 2):
        with torch.no_grad():
            entered.append(first(torch.randn(512, 512)))
        if len(entered) < 3:
            continue
        loss = second(entered.popleft()).square().mean()
        yield stepped(optimizer, loss)


LOOPS: dict[str, Callable[[int], Losses]] = {
    loop.__name__: loop
    for loop in (
        tutorial, language, images, features, history, prefetch, recurrent, persistent, teacher, adversarial, turns,
        accumulation, overlapped,
    )
}  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=list(LOOPS), metavar="NAME", help="see --list")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--list", action="store_true", help="list the loops and exit")
    arguments = parser.parse_args()
    if arguments.name is None and not arguments.list:
        parser.error("expected the NAME of a loop, or --list")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if arguments.list:
        lines: Any = (f"{name:12}  {(loop.__doc__ or '').strip()}" for name, loop in LOOPS.items())
        print("\n".join(lines))
        return 0
    torch.manual_seed(1)
    torch.set_default_device(arguments.device)
    for loss in LOOPS[arguments.name](arguments.iterations):
        print(f"loss {loss.item():.9g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
