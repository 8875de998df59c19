"""Cases of test_graphs_cuda.py: graph_cases.py CASE

What people do with CUDA graphs, while the tensors of cuda_cases.iteration lie in the arena.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import adapter
import torch
from cuda_cases import MIB, intact, iteration, served
from torch import nn


def _pass(layers: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _results(layers: Sequence[nn.Module], x: torch.Tensor) -> list[torch.Tensor]:
    """What comes out, and the gradients of all weights; copies, since replays write over their own."""
    y = _pass(layers, x)
    weights = [parameter for layer in layers for parameter in layer.parameters()]
    return [each.clone() for each in (y, *torch.autograd.grad(y.square().sum(), weights))]


def graphed_callables() -> dict[str, Any]:
    """Callables of several shapes in one pool: to the last bit what they are without graphs."""
    widths = (256, 512, 128, 64)
    layers = [nn.Sequential(nn.Linear(*pair), nn.GELU()).cuda() for pair in zip(widths, widths[1:])]
    eager = copy.deepcopy(layers)
    samples = [(torch.randn(64, width, device="cuda", requires_grad=True),) for width in widths[:-1]]
    with iteration():
        graphed = torch.cuda.make_graphed_callables(tuple(layers), tuple(samples))
    for _ in range(3):
        x = torch.randn(64, widths[0], device="cuda", requires_grad=True)
        with iteration(1) as tensors:
            ours, expected = (_results(each, x) for each in (graphed, eager))
            assert intact(tensors)
        assert all(torch.equal(*pair) for pair in zip(ours, expected, strict=True))
    return {"served": served()}


class _SharedPool:
    """Two graphs of one pool; the second reads what the first writes."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.x = torch.zeros(MIB, device="cuda")
        self.first, self.first_result = self._captured(lambda: (self.x + 1) * 2)
        self.capture_second()

    def _captured(self, work: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            result = work()
        return graph, result

    def capture_second(self) -> None:
        self.second, self.second_result = self._captured(lambda: self.first_result * 3 + self.x)

    def drop_second(self) -> None:
        del self.second, self.second_result

    def check(self, value: float) -> None:
        self.x.fill_(value)
        self.first.replay()
        filler = [torch.full((MIB,), -1.0, device="cuda") for _ in range(8)]
        self.second.replay()
        assert bool((self.second_result == (value + 1) * 6 + value).all())
        del filler


def shared_pool() -> dict[str, Any]:
    """Graphs of one pool in their order; one is deleted and captured again; another thread and stream replay them."""
    with iteration():
        graphs = _SharedPool()
    for step in range(3):
        with iteration(1) as tensors:
            graphs.check(step)
            assert intact(tensors)
    graphs.drop_second()
    torch.cuda.empty_cache()
    graphs.capture_second()
    failures: list[BaseException] = []

    def elsewhere() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                graphs.check(7)
        except BaseException as failure:
            failures.append(failure)

    with iteration(1) as tensors:
        torch.cuda.synchronize()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        torch.cuda.synchronize()
        graphs.check(8)
        assert intact(tensors)
    assert not failures, failures
    return {"served": served()}


def makes_room() -> dict[str, Any]:
    """A capture begun by hand, without an emptied cache before it: idle parts of the arena go back, and come again."""
    with iteration():
        pass
    source = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        result = source * 2
        graph.capture_end()
    lent = adapter.stats()["arena_lent_bytes"]
    with iteration(1) as tensors:
        graph.replay()
        assert intact(tensors)
    assert bool((result == 2).all())
    return {"made_room": lent > 0}


def input_of_a_mempool() -> dict[str, Any]:
    """A graph reads what its MemPool had before the capture, and the program drops it: its bytes stay there."""
    pool = torch.cuda.MemPool()
    with iteration(3, pool) as tensors:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            result = tensors[0][: 64 * 1024].to(torch.int32).sum()
    del tensors
    for _ in range(3):
        with iteration(2) as others:
            torch.cuda.empty_cache()
            graph.replay()
            assert result.item() == 64 * 1024, "the first tensor was filled with ones"
            assert intact(others)
    del graph, result, pool
    with iteration(2) as others:
        assert intact(others)
    return {"served": served()}


def capture_fails() -> dict[str, Any]:
    """Errors in the middle of a capture, of the program and of CUDA: the run goes on, and captures again."""
    source = torch.ones(MIB, device="cuda")
    for is_of_cuda in (False, True):
        failed = ""
        with iteration(1) as tensors:
            try:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    half = source * 2
                    if is_of_cuda:
                        torch.cuda.synchronize()  # not permitted in a capture, and ends it
                    raise KeyError
            except (KeyError, RuntimeError) as error:
                failed = type(error).__name__
            del half
            assert (failed == "KeyError") != is_of_cuda, failed
            assert intact(tensors)
        graph = torch.cuda.CUDAGraph()
        with iteration(1) as tensors:
            with torch.cuda.graph(graph):
                whole = source * 4
            graph.replay()
            assert bool((whole == 4).all())
            assert intact(tensors)
    return {"served": served()}


def out_of_memory_in_capture() -> dict[str, Any]:
    """More than any device has: torch's own error. What was captured until then is a graph."""
    source = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    error = None
    with iteration() as tensors:
        try:
            with torch.cuda.graph(graph):
                result = source * 2
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as raised:
            error = raised
        assert error is not None
        assert intact(tensors)
    with iteration(1) as tensors:
        source.fill_(3)
        graph.replay()
        assert bool((result == 6).all())
        assert intact(tensors)
    return {"served": served()}


def _captured(work: Callable[[], Any], **options: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph(**{key: value for key, value in options.items() if key == "keep_graph"})
    with torch.cuda.graph(graph, **{key: value for key, value in options.items() if key == "pool"}):
        return graph, work()


def _pools() -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = adapter.graphs()["pools"]
    return pools


def followed() -> dict[str, Any]:
    """Two graphs of a pool: what is dead, what the first leaves for the second, and how often they are launched."""
    pool = torch.cuda.graph_pool_handle()
    source = torch.ones(MIB, device="cuda")
    held: list[torch.Tensor] = []

    def first() -> torch.Tensor:
        held.append(source * 2)  # 4 MiB, carried to the second one
        return (source + 1) * 3  # 4 MiB of it are dead, 4 MiB stay

    def second() -> torch.Tensor:
        return held.pop() + 1

    one, one_result = _captured(first, pool=pool)
    two, two_result = _captured(second, pool=pool)
    figures = []
    for launches in range(3):
        if not _pools():
            break
        figures.append(_pools()[-1])
        assert figures[-1]["launches"] == 2 * launches
        one.replay()
        two.replay()
        torch.cuda.synchronize()
        assert bool((one_result == 6).all())
        assert bool((two_result == 3).all())
    assert all(each["layout"] == figures[0]["layout"] for each in figures)
    del one, two, one_result, two_result
    gone = _pools()[-1]["not_followed"] if _pools() else ""
    return {"followed": adapter.graphs()["followed"], "figures": figures[:1], "gone": gone}


def not_followed() -> dict[str, Any]:
    """A handle that the program gets, and a pool whose state is taken."""
    source = torch.ones(MIB, device="cuda")
    kept, kept_result = _captured(lambda: source * 2, keep_graph=True)
    kept.instantiate()
    assert kept.raw_cuda_graph() != 0
    kept.replay()
    taken, taken_result = _captured(lambda: source * 4)
    taken.replay()
    torch._C._cuda_getCheckpointState(0, taken.pool())
    torch.cuda.synchronize()
    for result, value in ((kept_result, 2), (taken_result, 4)):
        assert bool((result == value).all())
    return {"why": [each["not_followed"] for each in _pools()]}


def _in_snapshot(tensors: Sequence[torch.Tensor]) -> bool:
    snapshot = torch.cuda.memory_snapshot()
    shown = {block["address"] for segment in snapshot for block in segment["blocks"] if block["state"] != "inactive"}
    return all(tensor.data_ptr() in shown for tensor in tensors)


def lends() -> dict[str, Any]:
    """What a graph needs only while it runs serves other tensors between launches: poisoned, and results are right."""
    source = torch.ones(MIB, device="cuda")
    graph, result = _captured(lambda: (source.repeat(16) * 2).view(16, -1).sum(0))  # 128 MiB of it are dead
    lent = False
    for step in range(8):
        with iteration(0):
            source.fill_(step)
            graph.replay()
            # The pool is lent from the second iteration on; before, the arena would grow for these.
            count = 2 if step > 3 else 0
            poison = [torch.full((11 * MIB,), float("nan"), device="cuda") for _ in range(count)]
            assert _in_snapshot(poison)
            lent = lent or adapter.stats()["graph_pools"]["hits"] > 0
            torch.cuda.synchronize()
            assert bool((result == 32 * step).all())
            del poison
    other = torch.cuda.Stream()
    with iteration(0) as tensors:  # tensors that are there at a launch
        graph.replay()
        late = torch.full((10 * MIB,), 7.0, device="cuda")
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            graph.replay()
        torch.cuda.synchronize()
        assert bool((late == 7).all())
        assert bool((result == 32 * 7).all())
        assert intact(tensors)
    figures = adapter.stats()["graph_pools"]
    filled = figures["filled_bytes"]
    return {"lent": lent, "surprises": figures["surprises"], "served": served(), "filled_bytes": filled}


def carries() -> dict[str, Any]:
    """Two graphs, of which the second takes what the first gives; at last the second without the first."""
    pool = torch.cuda.graph_pool_handle()
    source = torch.ones(MIB, device="cuda")
    held: list[torch.Tensor] = []

    def first() -> torch.Tensor:
        held.append(source * 2)
        return (source + 1) * 3

    one, one_result = _captured(first, pool=pool)
    two, two_result = _captured(lambda: held.pop() + 1, pool=pool)

    def check(step: int) -> None:
        source.fill_(step)
        one.replay()
        two.replay()
        torch.cuda.synchronize()
        assert bool((one_result == 3 * (step + 1)).all())
        assert bool((two_result == 2 * step + 1).all())

    for step in range(4):  # the pool is lent from the second iteration on
        with iteration(0) as tensors:
            check(step)
            assert intact(tensors)
    refused = ""
    with iteration(0):
        try:
            two.replay()
        except RuntimeError:
            refused = adapter.graph_error()
        check(7)
    return {"refused": refused, "filled_bytes": adapter.stats()["graph_pools"]["filled_bytes"]}


def _at(address: int, count: int) -> torch.Tensor:
    """Integers in memory of the device that is another's, as a kernel with a mere pointer sees them."""
    storage = torch._C._construct_storage_from_data_pointer(address, torch.device("cuda", 0), 4 * count)
    return torch.empty(0, dtype=torch.int32, device="cuda").set_(storage, 0, (count,), (1,))


def reads_idle() -> dict[str, Any]:
    """A program that reads a block of its graph which was freed within the capture: by its address, no tensor is it."""
    source = torch.ones(MIB, device="cuda")
    addresses: list[int] = []

    def work() -> torch.Tensor:
        twice = source.repeat(16) * 2  # 64 MiB
        addresses.append(twice.data_ptr())
        return twice.view(16, -1).sum(0)

    graph, result = _captured(work)
    idle = _at(addresses[0], 16 * MIB)
    filled = []
    for step in range(4):
        with iteration(0):
            source.fill_(step)
            graph.replay()
            seen = [*idle[:4].tolist(), *idle[-4:].tolist()]  # 0xff in all bytes is -1
            filled.append(all(each == -1 for each in seen))
            assert bool((result == 32 * step).all())
    return {"filled": filled, "filled_bytes": adapter.stats()["graph_pools"]["filled_bytes"]}


if __name__ == "__main__":
    adapter.run_case(globals())
