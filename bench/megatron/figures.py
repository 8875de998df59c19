"""What runs of one workload under several allocators came to: rows per mode and rank, and a table of them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from typing import Any

Result = dict[str, Any]
GIB = float(1 << 30)
_ITERATION = re.compile(
    r"iteration +(\d+)/ *\d+ .*elapsed time per iteration \(ms\): ([0-9.]+).*lm loss: (\S+) .*grad norm: (\S+) "
)
_EVALUATION = re.compile(r"validation loss at (.+?) \| lm loss value: (\S+)")


def read_log(text: str) -> Result:
    """What Megatron prints: per iteration the time, the loss and the gradients' norm, and the evaluations."""
    iterations = [match.groups() for match in _ITERATION.finditer(text)]
    return {
        "losses": {number: loss for number, _, loss, _ in iterations},
        "grad_norms": {number: norm for number, _, _, norm in iterations},
        "step_ms": {number: float(elapsed) for number, elapsed, _, _ in iterations},
        "evaluations": dict(_EVALUATION.findall(text)),
    }


def quiet_step_ms(result: Result) -> float | None:
    """The median of quiet steps."""
    times = quiet_steps_ms(result)
    return statistics.median(times) if times else None


def quiet_steps_ms(result: Result) -> list[float]:
    """Steps without the first three, and without those after an evaluation or a checkpoint."""
    first = min(map(int, result["step_ms"]), default=0)
    intervals = [interval for interval in result.get("disturbed_every", []) if interval]
    return [
        elapsed
        for number, elapsed in result["step_ms"].items()
        if int(number) >= first + 3 and all((int(number) - 1) % interval for interval in intervals)
    ]


def rows_of(results: dict[str, Result]) -> list[dict[str, Any]]:
    """One a mode and rank; ratios and equality are against native, of a resumed run against native's, too, if any.

    `share_in_slots`: of the requests over 512 B of training, from the second iteration on, those that got their planned
    slots. Where a run took its plan up on its way, live and held bytes and E are from then on; `run_efficiency` is of
    the whole run. Evaluations and checkpoints have no slots: their requests lie in the space that slots leave, and
    is counted in `fenced_requests`.
    """
    rows = []
    for mode, result in results.items():
        native = results.get("native")
        if mode == "resumed":
            native = results.get("native-resumed", native)
        step, base = quiet_step_ms(result), quiet_step_ms(native) if native else None
        for rank, figures in enumerate(result["ranks"]):
            ours = figures.get("stalloc")
            held = ours["held_peak_bytes"] if ours else figures.get("held_peak_bytes")
            live = ours["peak_live_bytes"] if ours else _live_of_rank(results, rank)
            of_run = live / held if live and held else None
            if ours and (since := ours.get("since_plan")):
                live, held = since["peak_live_bytes"], since["held_peak_bytes"]
            row = {"mode": mode, "rank": rank, "live_bytes": live, "held_bytes": held, "step_ms": step}
            row["efficiency"] = live / held if live and held else None
            row["run_efficiency"] = of_run
            row["step_ratio"] = step / base if step and base else None
            if ours:
                row["share_in_slots"] = ours["steady"]["hits"] / max(ours["steady"]["requests"], 1)
                row["fenced_requests"] = ours["steady"]["fenced"]
            if native and mode not in ("trace", "native-resumed") and rank < len(native["ranks"]):
                row["weights_equal"] = figures["weights_sha256"] == native["ranks"][rank]["weights_sha256"]
            row["losses_equal"] = _same_losses(result, native) if native and mode != "native-resumed" else None
            rows.append(row)
    return rows


def table(results: dict[str, Result]) -> str:
    names = f"{'live GiB':>10}{'held GiB':>10}{'E %':>9}{'step ms':>10}{'x native':>10}{'in slots':>9}{'fenced':>8}"
    lines = [f"{'mode':15}{'rank':>5}{names}  equal to native's"]
    lines += [_line(row) for row in rows_of(results)]
    for mode, result in results.items():
        if result["exit_code"]:
            what = "out of memory" if result["out_of_memory"] else f"ended with {result['exit_code']}"
            lines.append(f"{mode:15} {what}, after {len(result['losses'])} iterations")
    return "\n".join(lines)


def _live_of_rank(results: dict[str, Result], rank: int) -> int | None:
    for mode in ("alloc", "trace"):
        ranks = results.get(mode, {}).get("ranks", [])
        if rank < len(ranks) and "stalloc" in ranks[rank]:
            return int(ranks[rank]["stalloc"]["peak_live_bytes"])
    return None


def _same_losses(result: Result, native: Result) -> bool:
    """To the last printed digit, in all iterations that both have; at least one."""
    shared = result["losses"].keys() & native["losses"].keys()
    # A shorter run (a trace) evaluates what its own end has come to.
    last = max(native["losses"], key=int, default=None)
    evaluations: Iterable[str] = ()
    if last in shared:
        evaluations = result["evaluations"].keys() & native["evaluations"].keys()
    return (
        bool(shared)
        and all(result[key][number] == native[key][number] for key in ("losses", "grad_norms") for number in shared)
        and all(result["evaluations"][what] == native["evaluations"][what] for what in evaluations)
    )


def _line(row: dict[str, Any]) -> str:
    def cell(name: str, scale: float, width: int, digits: int) -> str:
        value = row.get(name)
        return f"{'-':>{width}}" if value is None else f"{value * scale:{width}.{digits}f}"

    equal = {None: "-", True: "losses", False: "LOSSES DIFFER"}[row["losses_equal"]]
    equal += {None: "", True: ", weights", False: ", WEIGHTS DIFFER"}[row.get("weights_equal")]
    return (
        f"{row['mode']:15}{row['rank']:5}{cell('live_bytes', 1 / GIB, 10, 3)}{cell('held_bytes', 1 / GIB, 10, 3)}"
        f"{cell('efficiency', 100, 9, 2)}{cell('step_ms', 1, 10, 1)}{cell('step_ratio', 1, 10, 4)}"
        f"{cell('share_in_slots', 100, 9, 3)}{cell('fenced_requests', 1, 8, 0)}  {equal}"
    )
