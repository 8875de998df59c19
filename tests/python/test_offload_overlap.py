"""Offloaded tensors go and come back in the order of stations, on time, through one pool: with real training, on a lane
whose copies run as late as streams may run them, so that whatever does not wait for one finds other bytes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stalloc

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

from applied_models import Model, gradients, same, write  # noqa: E402
from processes import ROOT  # noqa: E402
from stalloc.train.changes import changed, offload, stations, transfers  # noqa: E402
from stalloc.train.changes.host_pool import HostPool  # noqa: E402

CPU = torch.device("cpu")


class Copy:
    """One of a queue, which runs in order when something waits for one of its copies."""

    def __init__(self, queue: list[Any], run: Callable[[], object]) -> None:
        self.done = False
        self._queue, self._run = queue, run
        queue.append(self)

    def wait(self) -> None:
        while not self.done:
            first = self._queue.pop(0)
            first._run()
            first.done, first._run = True, None


class LateLane(transfers.Lane):
    overlaps = True

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.pool = HostPool(pinned=False)
        self.log: list[tuple[str, Any]] = []
        self._out: list[Any] = []
        self._back: list[Any] = []

    def stream(self) -> Any:
        return "one"

    def to_host(self, source: Any, host: Any) -> Any:
        return Copy(self._out, lambda: host.copy_(source))

    def to_device(self, host: Any, copied: Any, stream: Any) -> tuple[Any, Any]:
        assert stream == "one"
        buffer = torch.full((host.numel(),), 255, dtype=torch.uint8)
        self.log.append(("fetched", host.numel()))

        def run() -> None:
            copied.wait()
            buffer.copy_(host)

        return buffer, Copy(self._back, run)

    def wait(self, stream: Any, event: Any) -> None:
        if event is not None:
            event.wait()

    def used_by(self, tensor: Any, stream: Any) -> None:
        if tensor.dtype is not torch.uint8:  # what came back
            self.log.append(("released", tensor.nbytes))

    def _reuse_after(self, event: Any) -> None:
        self.wait(None, event)

    def in_use(self) -> int:
        """Bytes of the pool."""
        self.give(self.take(1), None)
        with self.lock:
            self.give(self.take(1), None)
        return self.pool.used - 512


@pytest.fixture(params=[LateLane, transfers.Lane])
def lane(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The host's own tensors leave, however small they are."""
    made = request.param(CPU)
    if not hasattr(made, "in_use"):
        made.in_use = lambda: LateLane.in_use(made)
    monkeypatch.setattr(offload, "_STAY", set())
    monkeypatch.setattr(offload, "_LEAST", 1)
    monkeypatch.setitem(transfers._lanes, CPU, made)
    yield made
    assert stations._here.current is None
    assert not stations._here.open


@pytest.fixture
def late(lane: Any) -> Any:
    if not lane.overlaps:
        pytest.skip("copies are made at once")
    return lane


class Wide(torch.nn.Module):  # type: ignore[misc]
    """Saves bytes by which it is known: `width` columns. Keeps names of the storages that it saved."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, width), torch.nn.Linear(width, 8)
        self.saved: list[Any] = []

    def forward(self, x: Any) -> Any:
        hidden = self.up(x).tanh()
        self.saved.append(StorageWeakRef(hidden.untyped_storage()))
        return x + self.down(hidden)


class Stack(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, widths: Any) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Wide(width) for width in widths)
        self.on_begin: Callable[[int], None] = lambda i: None
        self.on_end: Callable[[int], None] = lambda i: None

    def forward(self, x: Any) -> Any:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            self.on_end(i)
            if x.requires_grad:
                x.register_hook(lambda _, i=i: self.on_begin(i))
        return x.sum()


def applied(model: Any, tmp_path: Path, *layers: int, **others: Any) -> Any:
    stalloc.apply(write(tmp_path / "fit.json", offload=[f"layers.{i}" for i in layers], **others), model)
    return model


def training(model: Any, steps: int = 3) -> list[Any]:
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows in range(steps):
        optimizer.zero_grad()
        model(torch.rand(4 + rows, 8)).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("chosen", [(0,), (0, 1, 2, 3, 4, 5, 6, 7), (0, 2, 5), (7,), (3, 4)])
def test_training_is_the_same(lane: Any, tmp_path: Path, chosen: tuple[int, ...]) -> None:
    model = Stack([8] * 8)
    expected = training(copy.deepcopy(model))
    assert same(training(applied(model, tmp_path, *chosen)), expected)
    assert lane.in_use() == 0
    assert lane.sent > 0


def test_the_order_is_that_of_the_stations(late: Any, tmp_path: Path) -> None:
    """Layer 1 is let go where the third after it ends, layer 6 where the pass does; both are on their way back two
    layers ahead, the later one first."""
    widths = [8, 100, 8, 8, 8, 8, 200, 8]
    model = applied(Stack(widths), tmp_path, 1, 6)
    model.on_end = lambda i: late.log.append(("end", i))
    model.on_begin = lambda i: late.log.append(("begin", i))
    loss = model(torch.ones(4, 8))
    late.log.append(("pass", 0))
    loss.backward()
    of_hidden = {4 * 4 * 100: 1, 4 * 4 * 200: 6}
    told = [
        (word, of_hidden.get(what, what) if word in ("released", "fetched") else what)
        for word, what in late.log
        if word not in ("released", "fetched") or what in of_hidden
    ]
    assert told == [
        *(("end", i) for i in range(4)),
        ("released", 1),  # layer 4 has ended, its caller does not know yet
        *(("end", i) for i in range(4, 8)),
        ("released", 6),
        ("pass", 0),
        ("fetched", 6),
        *(("begin", i) for i in (7, 6, 5, 4)),
        ("fetched", 1),
        *(("begin", i) for i in (3, 2, 1, 0)),
    ]


def test_what_was_saved_is_not_on_the_device_between_the_passes(lane: Any, tmp_path: Path) -> None:
    model = applied(Stack([8] * 6), tmp_path, 1, 5)
    loss = model(torch.ones(4, 8))
    assert [layer.saved[0].expired() for layer in model.layers] == [i in (1, 5) for i in range(6)]
    loss.backward()


def test_only_some_layers_are_back_at_a_time(late: Any, tmp_path: Path) -> None:
    model = applied(Stack([8] * 12), tmp_path, *range(12))
    most = 0

    def count(_: int) -> None:
        nonlocal most
        sent = [known() for each in passed._stations for known in each]
        most = max(most, sum(each is not None and each.is_on_device for each in sent))

    model.on_begin = count
    passed: Any = None
    begun = stations.Pass.begin

    def begin(self: Any) -> None:
        nonlocal passed
        passed = self
        begun(self)

    stations.Pass.begin = begin  # type: ignore[method-assign]
    try:
        model(torch.ones(4, 8)).backward()
    finally:
        stations.Pass.begin = begun  # type: ignore[method-assign]
    each = len(passed._stations[5])
    assert 0 < most <= (stations.AHEAD + 1) * each


def test_the_pool_is_taken_once_and_grows_where_more_is_saved(lane: Any, tmp_path: Path) -> None:
    model = applied(Stack([20000] * 3), tmp_path, 0, 1, 2)
    sizes = []
    for rows in (16, 16, 4, 16, 64, 64):
        model(torch.ones(rows, 8)).backward()
        sizes.append(lane.pool.size)
        assert lane.in_use() == 0
    assert sizes[0] == sizes[3] > 0
    assert sizes[4] == sizes[5] > sizes[3]
    transfers.close()
    assert lane.pool.size == 0
    gradients(model)


def test_what_is_away_when_the_pool_is_freed_comes_back(lane: Any, tmp_path: Path) -> None:
    model = Stack([8] * 4)
    expected = gradients(copy.deepcopy(model))
    applied(model, tmp_path, 0, 1)
    torch.manual_seed(3)
    model.zero_grad()
    loss = model(torch.ones(4, 8))
    transfers.close()
    loss.backward()
    assert same([parameter.grad for parameter in model.parameters()], expected)
    assert lane.in_use() == 0


# -- Which bytes


class Shared(torch.nn.Module):  # type: ignore[misc]
    """Saves a tensor three times, twice as a view, and once more after it was changed."""

    def __init__(self, change: bool) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Any) -> Any:
        hidden = x.detach().clone()
        y = x * hidden + x.t().reshape(8, 8) * hidden.t() + (x.reshape(-1) * hidden.view(-1)).view(8, 8)
        if self.change:
            y = y + x * (hidden.clone().add_(1))
        return y


@pytest.mark.parametrize("change", [False, True])
def test_the_same_bytes_are_copied_once(lane: Any, change: bool) -> None:
    model = Shared(change)
    x = torch.rand(8, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    changed.change([(model, changed.OFFLOAD)])
    loss = model(x).sum()
    assert lane.sent == 256 * (2 if change else 1)
    assert torch.equal(torch.autograd.grad(loss, x)[0], expected)


def test_a_changed_tensor_is_not_taken_for_what_it_was(lane: Any) -> None:
    class Changing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                hidden = torch.ones(8)
            first = x * hidden.clone()
            with torch.no_grad():
                hidden.add_(1)
            return first + x * hidden

    x = torch.rand(8, requires_grad=True)
    module = Changing()
    changed.change([(module, changed.OFFLOAD)])
    assert torch.autograd.grad(module(x).sum(), x)[0].tolist() == [3.0] * 8


def test_a_tensor_that_is_changed_while_it_is_copied_is_an_error(late: Any) -> None:
    class Exp(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = x.exp()
            y.detach().add_(1)
            return y.view(3, 1)

    module = Exp()
    changed.change([(module, changed.OFFLOAD)])
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \(3,\), while it was copied"):
        module(torch.zeros(3, requires_grad=True)).sum().backward()


def test_small_tensors_and_weights_of_autocast_stay(lane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Tanh())
    changed.change([(model, changed.OFFLOAD)])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.ones(2, 64)).float().sum()
    assert lane.sent == 2 * 64 * 2 * 2  # the input in bfloat16 and what tanh gave; no weight
    loss.backward()
    monkeypatch.setattr(offload, "_LEAST", 1 << 10)
    sent = lane.sent
    model(torch.ones(2, 64)).sum().backward()
    assert lane.sent == sent


# -- Passes of all sorts


def test_a_graph_is_used_twice_and_twice_differentiated(lane: Any, tmp_path: Path) -> None:
    model = Stack([8] * 4)
    plain = copy.deepcopy(model)
    applied(model, tmp_path, 0, 1, 3)

    def found(module: Any) -> list[Any]:
        x = torch.ones(4, 8, requires_grad=True)
        loss = module(x)
        parameters = list(module.parameters())
        first = torch.autograd.grad(loss, parameters, retain_graph=True)
        second = torch.autograd.grad(loss, parameters, retain_graph=True)
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        return [*first, *second, *torch.autograd.grad(grad.pow(2).sum(), parameters, allow_unused=True)]

    mine, theirs = ([each for each in found(one) if each is not None] for one in (model, plain))
    assert same(mine, theirs)
    assert lane.in_use() == 0


def test_passes_that_end_otherwise_leave_nothing(lane: Any, tmp_path: Path) -> None:
    """Without a backward pass, with a part of one, with an error in the forward pass, without gradients."""
    model = Stack([8] * 5)
    expected = gradients(copy.deepcopy(model))
    applied(model, tmp_path, 1, 2, 4)
    x = torch.ones(4, 8)
    assert model(x) is not None
    assert lane.in_use() == 0
    loss = model(x)
    torch.autograd.grad(loss, model.layers[4].parameters())
    del loss
    assert lane.in_use() == 0

    def fail(i: int) -> None:
        if i == 3:
            raise KeyError("out of memory")

    model.on_end = fail
    with pytest.raises(KeyError):
        model(x)
    model.on_end = lambda i: None
    assert lane.in_use() == 0
    with torch.no_grad():
        model(x)
    assert same(gradients(model), expected)
    assert lane.in_use() == 0


def test_an_error_within_a_chosen_module_leaves_nothing(lane: Any, tmp_path: Path) -> None:
    model = applied(Model(layers=3), tmp_path, 0, 1)
    with pytest.raises(RuntimeError):
        model(torch.ones(4, 7))
    expected = gradients(copy.deepcopy(model))
    assert same(gradients(model), expected)
    assert lane.in_use() == 0


def test_micro_batches_whose_passes_interleave(lane: Any, tmp_path: Path) -> None:
    model = Stack([8] * 5)
    plain = copy.deepcopy(model)
    applied(model, tmp_path, 0, 2, 3)

    def found(module: Any) -> list[Any]:
        module.zero_grad()
        losses = [module(torch.full((rows, 8), 0.1 * rows)) for rows in (2, 3, 4)]
        for i in (1, 0, 2):
            losses[i].backward()
        return [parameter.grad for parameter in module.parameters()]

    assert same(found(model), found(plain))
    assert lane.in_use() == 0


def test_threads_have_passes_of_their_own(lane: Any, tmp_path: Path) -> None:
    models = [applied(Stack([8] * 5), tmp_path, 0, 1, 4) for _ in range(3)]
    expected = [training(copy.deepcopy(model), 1) for model in models]
    found: dict[int, list[Any]] = {}
    begin = threading.Barrier(len(models))
    data = [torch.rand(4, 8, generator=torch.Generator().manual_seed(i)) for i in range(len(models))]

    def grads(model: Any, x: Any) -> list[Any]:
        model.zero_grad()
        model(x).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    def run(i: int) -> None:
        begin.wait()
        for _ in range(5):
            found[i] = grads(models[i], data[i])

    expected = [grads(copy.deepcopy(model), x) for model, x in zip(models, data)]
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[i], expected[i]) for i in range(len(models)))
    assert lane.in_use() == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_model_copies_nothing_twice(lane: Any, tmp_path: Path, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    model = Stack([8] * 4)
    expected = gradients(copy.deepcopy(model))
    applied(model, tmp_path, 1, 2)
    model.zero_grad()
    x = torch.ones(4, 8, requires_grad=True)
    checkpoint(model, x, use_reentrant=reentrant).backward()
    assert same([parameter.grad for parameter in model.parameters()], expected)
    assert lane.in_use() == 0


def test_recomputed_and_offloaded_in_one_model(lane: Any, tmp_path: Path) -> None:
    model = Stack([8] * 6)
    expected = training(copy.deepcopy(model))
    applied(model, tmp_path, 0, 2, 3, recompute=["layers.2", "layers.4"])
    assert same(training(model), expected)
    assert lane.in_use() == 0


def test_parts_of_layers_go_with_their_layer(late: Any, tmp_path: Path) -> None:
    """A part of layer 0 is released where layer 3 ends, not before."""
    model = Stack([50, 8, 8, 8, 8])
    expected = gradients(copy.deepcopy(model))
    stalloc.apply(write(tmp_path / "fit.json", offload=["layers.0.down"]), model)
    model.on_end = lambda i: late.log.append(("end", i))
    late.log.clear()
    assert same(gradients(model), expected)
    assert late.log.index(("released", 4 * 50 * 4)) == 3


def test_the_marks_are_made_once_and_copied_with_the_model(lane: Any, tmp_path: Path) -> None:
    model = applied(applied(Stack([8] * 4), tmp_path, 0), tmp_path, 0, 1)
    hooks = [len(layer._forward_hooks) for layer in model.layers]
    assert hooks == [1] * 4
    assert len(model._forward_hooks) == 1
    other = copy.deepcopy(model)
    assert same(gradients(other), gradients(model))


def test_the_planner_has_the_same_order() -> None:
    text = (ROOT / "planner" / "whatif" / "offload_trips.cc").read_text()
    assert f"kAfter = {stations.AFTER};" in text
    assert f"kAhead = {stations.AHEAD};" in text


# -- The pool


def test_pieces_are_apart_and_join_again() -> None:
    pool = HostPool(pinned=False)
    pieces = [pool.take(count) for count in (1, 511, 513, 4096, 0)]
    places = sorted((piece.begin, piece.end) for piece in pieces if piece.chunk is pieces[0].chunk)
    assert all(one[1] <= other[0] for one, other in zip(places, places[1:]))
    assert [piece.bytes.numel() for piece in pieces] == [1, 511, 513, 4096, 0]
    size = pool.size
    for piece in (pieces[i] for i in (1, 3, 0, 4, 2)):
        pool.give(piece)
    assert pool.used == 0
    assert pool.take(size).bytes.numel() == size, "all of it is one range again"
    assert pool.size == size


def test_the_smallest_range_that_fits_is_taken() -> None:
    pool = HostPool(pinned=False)
    first, _, third, _ = (pool.take(count) for count in (4096, 512, 1024, 512))
    pool.give(first)
    pool.give(third)
    assert pool.take(700).begin == third.begin
    assert pool.take(4000).begin == first.begin
