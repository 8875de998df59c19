"""stalloc.trace: start, step, stop, dump and names in scripts that nothing else marks."""

from __future__ import annotations

import pytest

from processes import FakeProcess, Training, run_python, view_of

MODE = {"STALLOC_MODE": "Trace"}
MANUAL = {**MODE, "STALLOC_TRACE_STEPS": "manual"}


def script(*lines: str) -> str:
    return "\n".join(["import stalloc.trace as trace", *lines])


def test_start_step_and_stop_are_in_the_trace_s_order(fake: FakeProcess) -> None:
    fake.python("-c", script("trace.start()", "trace.step()", "trace.step()", "trace.stop()"), **MANUAL).good()
    calls = [call for call in fake.calls() if call.startswith(("mark 2", "start_trace", "stop_trace"))]
    assert calls == ["start_trace", "mark 2 1 0 0 1 - 1", "mark 2 1 0 0 2 - 1", "stop_trace"]


def test_start_alone_puts_the_allocator_in_place(fake: FakeProcess) -> None:
    del fake.environment["STALLOC_MODEL_INFO_PATH"]
    program = script("trace.start('here')", "import stalloc; print(stalloc.mode(), trace.dump())")
    done = fake.python("-c", program, STALLOC_DEVICE="cuda").good()
    assert done.out.split() == ["Trace", "here/trace/rank00000.trace"]
    assert any(call.startswith("install cuda") for call in fake.calls())


@pytest.mark.parametrize(
    ("lines", "environment", "words"),
    [
        (["trace.step()"], {}, "nothing is traced: set STALLOC_MODE=Trace, or call stalloc.trace.start(DIRECTORY)"),
        (["trace.dump()"], {}, "nothing is traced"),
        (["trace.stop()"], {"STALLOC_MODE": "Alloc"}, "STALLOC_MODE is Alloc, and Trace is needed"),
        (["trace.start()"], {"STALLOC_MODE": "Alloc"}, "STALLOC_MODE is Alloc, and Trace is needed"),
        (["trace.start()"], MODE, "has begun already; STALLOC_TRACE_STEPS=manual lets it wait"),
        (["trace.step()"], MANUAL, "the trace has not begun"),
        (["trace.dump()"], MANUAL, "the trace has not begun"),
        (["trace.start('there')"], MANUAL, "the directory is fixed by then"),
        (["trace.stop()", "trace.start()"], MODE, "the trace has ended, and a process writes one"),
        (["trace.stop()", "trace.stop()"], MODE, "the trace has ended"),
        (["import stalloc", "stalloc.iteration(0)", "trace.step()"], MODE, "step() would count them twice"),
        (["trace.names()"], {**MODE, "STALLOC_TRACE_NAMES": "0"}, "names are switched off: STALLOC_TRACE_NAMES=0"),
        (["trace.start()"], {**MODE, "STALLOC_TRACE_RANKS": "7"}, "or its rank is not in STALLOC_TRACE_RANKS"),
    ],
)
def test_what_cannot_be_done_is_said(
    fake: FakeProcess, lines: list[str], environment: dict[str, str], words: str
) -> None:
    done = fake.python("-c", script(*lines), **environment)
    assert done.code == 1
    assert "RuntimeError: " in done.err
    assert words in done.err.splitlines()[-1]


def test_start_needs_a_directory() -> None:
    done = run_python("-c", script("trace.start()"))
    assert done.code == 1
    assert "give start() a directory, or set STALLOC_MODEL_INFO_PATH" in done.err


def test_a_step_of_an_optimizer_is_not_counted_twice(fake: FakeProcess) -> None:
    from stalloc.train.marking.marks import Marker

    told: list[int] = []
    marks: list[tuple[object, ...]] = []
    marker = Marker(lambda *mark: marks.append(mark), told.append)
    for turn in range(4):
        if turn != 2:  # one turn of the loop skips its optimizer
            marker.automatic_boundary()
        marker.step()
    assert told == [0, 1, 2, 3]
    assert len(marks) == 4


LOOP = """
import stalloc.trace, torch
model = torch.nn.Linear(300, 200)
stalloc.trace.start({directory!r})
weights = list(model.parameters())
for turn in range(5):
    loss = model(torch.randn(64, 300)).square().mean()
    gradients = torch.autograd.grad(loss, weights)
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient
    stalloc.trace.names()
    with torch.no_grad():
        for weight in weights:
            weight -= 0.01 * weight.grad
            weight.grad = None
    del loss, gradients, gradient
    stalloc.trace.step()
    if turn == 3:
        stalloc.trace.stop()
        break
print(loss if "loss" in globals() else "done")
"""


def test_a_loop_without_an_optimizer_is_traced_and_named(training: Training) -> None:
    """The first real allocator call comes after the model's: what is older is not in the trace."""
    environment = {"STALLOC_LIB_PATH": str(training.build), "STALLOC_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    run_python("-c", LOOP.format(directory=str(training.info)), environment=environment).good()
    trace = training.info / "trace" / "rank00000.trace"
    view = view_of(training.build, trace)
    assert view["rank"]["trace_complete"]
    assert view["rank"]["marks"]["automatic_iterations"] == 4
    names = dict(zip(view["devices"][0]["peak"]["name"], view["devices"][0]["peak"]["tensor"]))
    assert names.get("Linear.weight") == "gradient"
