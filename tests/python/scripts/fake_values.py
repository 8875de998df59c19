"""What programs do with tensors of the device before and while they train; run by `stalloc run --fake`.

fake_values.py [--sparse | --stop | --on-the-cpu]
"""

from __future__ import annotations

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

DEVICE = "cpu" if "--on-the-cpu" in sys.argv else "cuda"


def check_known_values() -> None:
    """Of what the program itself has made, and of nothing else."""
    labels = torch.tensor([[1, -100, 3], [-100, -100, 6]]).to(DEVICE)
    keep = labels.ne(-100)
    assert keep.sum().item() == 3
    assert labels[keep].tolist() == [1, 3, 6]
    assert torch.randn(2, 3, 4, device=DEVICE)[keep].shape == (3, 4)
    assert labels.nonzero().shape == (6, 2)
    assert labels.unique().tolist() == [-100, 1, 3, 6]
    assert labels.cpu().numpy().sum() == -290
    assert not keep.all()
    assert torch.ones(8, 1 << 10, dtype=torch.long, device=DEVICE).all()
    row = labels[0]
    row.add_(1)
    assert labels.tolist()[0] == [2, -99, 4]
    labels[1, 1].copy_(torch.randn(5000, device=DEVICE).argmax())  # nobody's value: the whole is not known any more
    assert read_of(lambda: labels.sum().item()) == "int"
    assert read_of(lambda: row.sum().item()) == "int"
    number = torch.randint(5, 9, (), device=DEVICE).item()
    assert 5 <= number < 9
    assert [round(x.item(), 1) for x in torch.linspace(0, 0.3, 4, device=DEVICE)] == [0.0, 0.1, 0.2, 0.3]


def check_finite(loss: Any) -> None:
    """A loss is taken to be a number."""
    assert not torch.isnan(loss)
    assert not torch.isinf(loss)
    assert not loss.ne(loss)
    assert torch.isfinite(torch.stack([loss, loss])).all()
    assert not torch.isnan(torch.empty(1 << 30, device=DEVICE)).any()
    assert read_of(lambda: bool(loss > 3)) == "bool"


def read_of(read: Any) -> str:
    """The kind of value that is said to be missing."""
    try:
        read()
    except RuntimeError as error:
        return str(error).split("the value of a ")[1].split()[0]
    return ""


def check_copies(model: Any) -> Any:
    before = torch.cuda.memory_allocated()
    twin = copy.deepcopy(model)
    size = sum(parameter.nbytes for parameter in model.parameters())
    assert torch.cuda.memory_allocated() - before == size
    assert all(isinstance(parameter, torch.nn.Parameter) for parameter in twin.parameters())
    assert {id(parameter) for parameter in twin.parameters()}.isdisjoint(map(id, model.parameters()))
    pair = torch.zeros(2, 1024, device=DEVICE)
    first, second = copy.deepcopy([pair[0], pair[1]])
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    pair.program_s_own = {"a": 1}
    assert copy.deepcopy(pair).program_s_own == {"a": 1}
    return twin


def check_threads() -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(torch.full((1 << 20,), 1.0, device=DEVICE)))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        made.append(pool.submit(lambda: torch.ones(1 << 20).to(DEVICE)).result())
    assert [type(tensor).__name__ for tensor in made] == ["FakeTensor"] * 2
    assert torch.cuda.memory_allocated() >= 2 * (4 << 20)


def check_history() -> None:
    torch.cuda.memory._record_memory_history(max_entries=100)
    torch.cuda.memory._dump_snapshot("never.pickle")
    assert torch.cuda.memory_snapshot() == []
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary(device=0)
    with torch.cuda.device(0):
        assert isinstance(torch.cuda.device(0), torch.cuda.device)


def main() -> None:
    model: Any = torch.nn.Embedding(1000, 64, sparse="--sparse" in sys.argv).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if len(sys.argv) == 1:
        check_known_values()
        check_threads()
        check_history()
        twin = check_copies(model)
        assert twin.weight.shape == model.weight.shape
    for _ in range(6):
        loss = model(torch.zeros(8, dtype=torch.long, device=DEVICE)).sum()
        if len(sys.argv) == 1:
            check_finite(loss)
        if "--stop" in sys.argv:
            raise SystemExit("stopped")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
