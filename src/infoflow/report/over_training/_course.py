"""The tables over training of a run, and the clocks of their checkpoints."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from infoflow.over_training import CLOCKS, SUFFIX

from .._model_tables import ModelTables
from .._numbers import listed
from .._series import Series
from .._shown_models import ShownModels
from ..forms._time_axis import TimeAxis

MEASURES = (
    "mutual_information",
    "layer_distance",
    "geometry",
    "effective_rank",
    "lens",
    "identity_neighbours",
    "position_neighbours",
    "context_neighbours",
    "tag_neighbours",
    "head_confidence",
    "head_entropy",
    "head_positional",
    "head_patterns",
    "head_surface",
    "head_relations",
    "head_rare_token",
    "head_importance",
    "head_relevance",
    "head_roles",
    "task_scores",
    "loss_by_position",
    "loss_by_frequency",
    "in_context_learning",
    "ngram_agreement",
    "weight_change",
    "translation_stages",
    "source_contribution",
)
"""Tables with a row for each checkpoint, called `<name>_over_training`."""
PLAIN = ("convergence", "phase_curves", "role_turnover", "prunable_by_update", "checkpoints", "checkpoint_checks")
"""Tables of checkpoints by their own names."""
_CLOCKS = [column.name for column in CLOCKS if column.name != "same_as"]
_EARLIER = {"step": "update"}  # what a table may call the updates of its checkpoints


@dataclass(frozen=True, eq=False)
class CheckpointTables:
    """The shown models over their training: their tables, and when each checkpoint was."""

    tables: ModelTables

    @property
    def models(self) -> ShownModels:
        return self.tables.models

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Rows of a table over training by its plain name; empty where there is none."""
        # The plain table of a measure is of finished models: not asked for, so that no note tells of it here.
        for each in (f"{name}{SUFFIX}",) if name in MEASURES else (f"{name}{SUFFIX}", name):
            if (frame := self.tables.over_training(each)) is not None:
                return frame if "update" in frame else frame.rename(columns=_EARLIER)
        return pd.DataFrame({"series": []})

    def __contains__(self, name: str) -> bool:
        return len(self[name]) > 0

    @cached_property
    def clocks(self) -> pd.DataFrame:
        """series, update, tokens, progress, lr_share: of every checkpoint, means over seeds."""
        frames = [self[name] for name in (*MEASURES, *PLAIN)]
        frames = [frame.reindex(columns=["series", "update", *_CLOCKS]) for frame in frames if "update" in frame]
        if not frames:
            return pd.DataFrame(columns=["series", "update", *_CLOCKS])
        every = pd.concat([frame.drop_duplicates() for frame in frames], ignore_index=True)
        every = every[every["update"] >= 0]
        means = every.groupby(["series", "update"], as_index=False)[_CLOCKS].mean()
        last = means.groupby("series")["update"].transform("max").clip(lower=1)
        return means.assign(progress=means["progress"].fillna(means["update"] / last))

    @cached_property
    def axis(self) -> TimeAxis:
        checks = self["checkpoint_checks"]
        errors = checks[checks["level"] == "error"] if len(checks) else checks.reindex(columns=["series", "update"])
        return TimeAxis.of(self.clocks, zip(errors["series"].astype(str), errors["update"].astype(int), strict=True))

    @property
    def moments(self) -> list[int]:
        """The updates of all models' checkpoints, in order: where the slider stops."""
        return sorted({int(update) for update in self.clocks["update"]})

    def series(self, frame: pd.DataFrame) -> list[Series]:
        return self.models.present(frame)

    def each(self, frame: pd.DataFrame) -> Iterator[tuple[Series, pd.DataFrame]]:
        """Every line of the page that has rows, with these."""
        for series in self.series(frame):
            yield series, frame[frame["series"] == series.key]


def means(frame: pd.DataFrame, by: Sequence[str], values: Iterable[str] = ("value",)) -> pd.DataFrame:
    """Means over seeds (and whatever `by` does not tell apart); `low` and `high`: see `band_note`.

    `seeds` is the number of seeds behind each.
    """
    by = ["series", *by, "update"]
    own = frame.dropna(subset=list(values), how="all").reset_index(drop=True)
    if "seed" not in own:
        own = own.assign(seed=0)
    several = bool((own.groupby(by)["seed"].nunique() > 1).any())
    first = next(iter(values))
    known = {"low", "high"} <= set(own) and not several
    own = own.assign(_low=own["low"] if known else own[first], _high=own["high"] if known else own[first])
    grouped = own.groupby(by, sort=True)
    table = grouped[list(values)].mean()
    if several or known:
        table = table.assign(low=grouped["_low"].min() if several else grouped["_low"].mean())
        table = table.assign(high=grouped["_high"].max() if several else grouped["_high"].mean())
    else:
        table = table.assign(low=np.nan, high=np.nan)
    return table.assign(seeds=grouped["seed"].nunique()).reset_index()


def band_note(table: pd.DataFrame) -> str:
    """What the bands of `means(...)` are."""
    seeds = int(table["seeds"].max()) if len(table) else 0
    if seeds > 1:
        return f"Lines are means over {seeds} seeds, bands go from the lowest seed to the highest."
    if bool(table["low"].notna().any()):
        return "Bands are 95% intervals over sentences, of one seed."
    return "One seed; no interval is known for these values."


def checkpoints_note(course: CheckpointTables, frame: pd.DataFrame) -> str:
    """How many checkpoints are behind a figure, and which."""
    parts = []
    for series, own in course.each(frame):
        updates = sorted({int(update) for update in own["update"]})
        parts.append((len(updates), updates[0], updates[-1], series.label))
    if len({part[:3] for part in parts}) == 1:
        count, first, last, _ = parts[0]
        return f"{count} checkpoints, from update {first:,} to {last:,}."
    told = [f"{label} {n}, {f'from {a:,} to {b:,}' if n > 1 else f'at {a:,}'}" for n, a, b, label in parts]
    return f"Checkpoints: {listed(told)}."
