"""From when to when each head held each role: from events, or from the roles at every checkpoint."""

from typing import NamedTuple

import pandas as pd

from ._course import CheckpointTables

EVENTS = ("birth", "death")
_PLACE = ["series", "stack", "kind", "layer", "head", "role"]


class RoleSpan(NamedTuple):
    """A head holds a role from one checkpoint on, until another one (None: to the end)."""

    series: str
    stack: str
    kind: str
    layer: int
    head: int
    role: str
    since: int
    until: int | None
    initial: bool  # held before the first update
    before: int  # the checkpoint before the birth

    def holds_at(self, update: int) -> bool:
        return self.since <= update and (self.until is None or update < self.until)


def role_spans(course: CheckpointTables) -> list[RoleSpan]:
    """Of each line's first seed."""
    events = first_seed(course["head_role_events"])
    if len(events):
        return _of_events(with_places(events))
    roles = first_seed(course["head_roles"])
    return _of_roles(with_places(roles)) if len(roles) and "holds" in roles else []


def first_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Heads of one number have nothing in common under different seeds: the rows of each line's first seed."""
    if frame.empty or "seed" not in frame:
        return frame
    return frame[frame["seed"] == frame.groupby("series")["seed"].transform("min")]


def with_places(frame: pd.DataFrame) -> pd.DataFrame:
    """With stack and kind of attention, where a table names none."""
    missing = {name: value for name, value in (("stack", ""), ("kind", "self")) if name not in frame}
    return frame.assign(**missing)


def _of_events(events: pd.DataFrame) -> list[RoleSpan]:
    spans = []
    order = events.assign(first=events["event"] != "initial").sort_values(["first", "after"], kind="stable")
    for place, own in order.groupby(_PLACE, sort=False):
        begun: tuple[int, int, bool] | None = None  # since, before, initial
        for row in own.itertuples():
            if row.event == "death":
                since, before, initial = begun or (0, 0, True)
                spans.append(RoleSpan(*_named(place), since, int(row.after), initial, before))
                begun = None
            elif begun is None:
                at_start = row.event == "initial"
                begun = (0, 0, True) if at_start else (int(row.after), int(row.before), False)
        if begun is not None:
            spans.append(RoleSpan(*_named(place), begun[0], None, begun[2], begun[1]))
    return spans


def _of_roles(roles: pd.DataFrame) -> list[RoleSpan]:
    spans = []
    for place, own in roles.sort_values("update").groupby(_PLACE, sort=False):
        updates, holds = own["update"].astype(int).tolist(), own["holds"].astype(bool).tolist()
        begun: int | None = None
        for number, (update, held) in enumerate(zip(updates, holds, strict=True)):
            if held and begun is None:
                begun = number
            elif not held and begun is not None:
                spans.append(_span(place, updates, begun, update))
                begun = None
        if begun is not None:
            spans.append(_span(place, updates, begun, None))
    return spans


def _span(place: tuple, updates: list[int], begun: int, until: int | None) -> RoleSpan:
    return RoleSpan(*_named(place), updates[begun], until, begun == 0, updates[max(begun - 1, 0)])


def _named(place: tuple) -> tuple[str, str, str, int, int, str]:
    series, stack, kind, layer, head, role = place
    return str(series), str(stack), str(kind), int(layer), int(head), str(role)
