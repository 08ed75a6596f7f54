"""Readings of closed self-attention: the share of what a model has learned that depends on it.

Shares come from models retrained with the attention closed if a seed has them, else from closing it at test time.
"""

# R bootstrap replicates; rows of numbers hold the estimate first, then its replicates: (1 + R, …)

from dataclasses import replace

import numpy as np

from infoflow.heads import ENCODER_CONTEXT

from ._model_group import TRANSLATION, Absent
from ._table import Reading, SeedRows, Table, one_number, together

ENCODER, DECODER = "encoder-self", "decoder-self"


def lost_share(kind: str, less: str = "") -> Reading:
    """The share lost with the kind closed at all blocks, whether the model was retrained, and for how many updates.

    The share is reduced by that of the kind `less`, if named; retrained counts as 1, not retrained as 0.
    """
    return _shares().reduce(_lost_share, kind=kind, less=less)


def untrained_share(kind: str, less: str = "") -> Reading:
    """Loss of the untrained model closed at test time, as a share of what the trained model of its seed has learned."""
    changes = replace(_table("loss").where(retrained=0), trained=False)
    return together(_untrained_share, changes, _shares(), kind=kind, less=less)


def how_closed(numbers: np.ndarray) -> str:
    """The words for rows of `lost_share`."""
    if numbers[0, 1] > 0:
        return f"closed at all blocks and trained on that way for {numbers[0, 2]:,.0f} updates"
    return "closed at all blocks at test time (no model was retrained: a plan that says [context] on = true does so)"


def some_retrained(numbers: np.ndarray) -> str | None:
    """Why seeds are not comparable, or None."""
    if 0 < numbers[0, 1] < 1:
        return "some of its seeds were retrained and others were not: let the study run to its end"
    return None


def _table(metric: str) -> Table:
    return Table(ENCODER_CONTEXT.name, TRANSLATION, needs=("kind", "retrained")).where(which="all", metric=metric)


def _shares() -> Table:
    absent = f"encoder_context has no shares of a {TRANSLATION.name} model that knows more than frequencies"
    return replace(_table("share"), absent=absent)


def _lost_share(rows: SeedRows, kind: str, less: str) -> np.ndarray:
    kinds = [kind, less] if less else [kind]
    own = {one: _of(rows, one) for one in kinds}
    updates = max(set.intersection(*(set(one.frame["retrained"]) for one in own.values())))
    parts = [one_number(one.at(one.frame["retrained"] == updates)) for one in own.values()]
    return _numbers(parts, int(updates))


def _untrained_share(rows: SeedRows, shares: SeedRows, kind: str, less: str) -> np.ndarray:
    of_trained = _of(shares, kind)
    learned = of_trained.at(of_trained.frame["retrained"] == 0).column("baseline")[0]
    return _numbers([one_number(_of(rows, one)) / learned for one in ([kind, less] if less else [kind])], 0)


def _of(rows: SeedRows, kind: str) -> SeedRows:
    found = rows.at(rows.frame["kind"] == kind)
    if found.frame.empty:
        raise Absent(f"encoder_context has no rows of {kind} of a {TRANSLATION.name} model")
    return found


def _numbers(parts: list[np.ndarray], updates: int) -> np.ndarray:
    common = min(map(len, parts))
    share = parts[0][:common] - (parts[1][:common] if len(parts) > 1 else 0.0)
    return np.concatenate([share, np.full((common, 1), float(updates > 0)), np.full((common, 1), float(updates))], 1)
