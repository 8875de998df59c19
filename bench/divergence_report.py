"""From the counts of one diverging run to a row of the divergence matrix, and from rows to tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from divergence_case import AT
from divergence_cases import CASES

LAST = 2  # iterations at the end of a run that show where it settles
SETTLED = 0.99  # of an iteration after a disturbance that is over
ALL_PLANNED = 0.999  # an undisturbed run without data-dependent sizes is served more than that
# Requests that the plan leaves to others on purpose.
NOT_FOR_PLAN = ("unplanned", "fenced", "parallel", "capturing")


@dataclasses.dataclass(frozen=True)
class Share:
    """Requests that the plan was to serve, those of them that got a slot, and those served from the arena's idle room.

    Requests that the plan has no slots for count as expected, too, where idle room served them: what is left to others
    is known of those alone that went there.
    """

    expected: int
    served: int
    beside: int

    @property
    def share(self) -> float:
        return self.served / self.expected if self.expected else 1.0

    @property
    def arena_share(self) -> float:
        return (self.served + self.beside) / self.expected if self.expected else 1.0

    def served_share(self, slots_alone: bool) -> float:
        return self.share if slots_alone else self.arena_share

    def text(self) -> str:
        slots, arena = f"{100 * self.share:.2f}", f"{100 * self.arena_share:.2f}"
        return slots if slots == arena else f"{slots} ({arena})"


@dataclasses.dataclass(frozen=True)
class Row:
    """One case of one model."""

    model: str
    case: str
    equal: bool
    before: Share  # the iteration before the disturbance
    rest: Share  # from the disturbance to the end of its iteration
    following: Share
    last: Share
    missed: dict[str, int]  # from the disturbance to the end of the run, by reason, without those left out on purpose
    gave_up: bool
    unknown_frees: int

    def line(self) -> str:
        losses = "equal" if self.equal else "DIFFERENT"
        shares = f"rest {self.rest.text()} %, next {self.following.text()} %, last {self.last.text()} %"
        return f"{self.case}: losses {losses}, {shares}{', gave up' if self.gave_up else ''}"

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        for key in ("before", "rest", "following", "last"):
            fields[key]["share"] = round(getattr(self, key).share, 6)
            fields[key]["arena_share"] = round(getattr(self, key).arena_share, 6)
        return fields


def _between(first: dict[str, Any], last: dict[str, Any]) -> Share:
    def missed(reason: str) -> int:
        return int(last["misses"][reason]) - int(first["misses"][reason])

    def counted(key: str) -> int:
        return int(last[key]) - int(first[key])

    left_out = sum(missed(reason) for reason in NOT_FOR_PLAN)
    return Share(counted("requests") - left_out, counted("planned_hits"), counted("dynamic_hits"))


def is_equal(run: dict[str, Any], plain: dict[str, Any]) -> bool:
    """Losses and weights to the last bit, and what the program caught."""
    return all(run[key] == plain[key] for key in ("losses_hex", "weights_sha256", "caught"))


def row_of(model: str, case: str, run: dict[str, Any], plain: dict[str, Any]) -> Row:
    """`run` is the case's result under the plan, `plain` without stalloc."""
    points = run["points"]
    begins = [point for point in points if point["event"] == "begin"]
    disturbed = [point for point in points if point["event"] == "disturbed" and point["iteration"] == AT]
    start = disturbed[-1] if disturbed else begins[AT]
    misses = {k: v - start["misses"][k] for k, v in begins[-1]["misses"].items() if k not in NOT_FOR_PLAN}
    return Row(
        model=model,
        case=case,
        equal=is_equal(run, plain),
        before=_between(begins[AT - 1], begins[AT]),
        rest=_between(start, begins[AT + 1]),
        following=_between(begins[AT + 1], begins[AT + 2]),
        last=_between(begins[-1 - LAST], begins[-1]),
        missed={reason: count for reason, count in misses.items() if count},
        gave_up=bool(begins[-1]["gave_up"]),
        unknown_frees=int(begins[-1]["unknown_frees"]),
    )


def failures(rows: list[Row]) -> list[str]:
    """What must not be.

    Where an undisturbed run gets all its slots, floors are shares of slots. Where sizes depend on the data it never
    does: there they are shares of what the arena serves the undisturbed run, in a slot or beside them, and only cases
    with a floor are judged, whose data are the undisturbed run's.
    """
    found = []
    undisturbed = {row.model: row for row in rows if row.case == "none"}
    for row in rows:
        usual = undisturbed.get(row.model)
        all_planned = usual is None or usual.following.share > ALL_PLANNED
        rest = usual.rest.served_share(all_planned) if usual else 1.0
        following = usual.following.served_share(all_planned) if usual else 1.0
        # What a disturbed iteration leaves in variables is there in the next one: that model has two to settle.
        settled = row.last if row.model == "outputs" else row.following
        got_rest, got_following = row.rest.served_share(all_planned), settled.served_share(all_planned)
        name = f"{row.model}, {row.case}"
        if not row.equal:
            found.append(f"{name}: losses or weights are not those of a run without stalloc")
        if row.unknown_frees:
            found.append(f"{name}: {row.unknown_frees} frees of addresses that nobody gave out")
        case = CASES[row.case]()
        floor = case.floor
        if floor is not None and got_rest < floor * rest:
            found.append(f"{name}: {got_rest:.2%} of the rest of the iteration served, expected {floor * rest:.2%}")
        if case.settles and (all_planned or floor is not None) and got_following < SETTLED * following:
            found.append(
                f"{name}: {got_following:.2%} of the next iteration served, expected {SETTLED * following:.2%}"
            )
    return found


def markdown(rows: list[Row]) -> str:
    """One line a case; for each model the hits of the rest of its iteration, of the next and of the last ones.

    In brackets: with those that the arena served beside the slots.
    """
    models = list(dict.fromkeys(row.model for row in rows))
    by_name = {(row.model, row.case): row for row in rows}
    head = ["case", *(f"{model}: rest / next / last %" for model in models), "losses and weights equal"]
    lines = [head, ["---"] * len(head)]
    for case in dict.fromkeys(row.case for row in rows):
        found = [by_name[model, case] for model in models if (model, case) in by_name]
        cells = [f"{r.rest.text()} / {r.following.text()} / {r.last.text()}{' gave up' * r.gave_up}" for r in found]
        lines.append([CASES[case]().text, *cells, "yes" if all(row.equal for row in found) else "NO"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
