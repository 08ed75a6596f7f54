"""A run's tables over training, the clocks of their checkpoints, and lines over them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from infoflow.report._curves import band_words, sampled_bands, seed_bands
from infoflow.report._in_words import listed
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import Series
from infoflow.report.forms._chart import tips
from infoflow.report.forms._lines import DASHES, LineKind, looks_of
from infoflow.report.forms._marks import Channel
from infoflow.report.forms._over_time import TimeAxis, time_lines
from infoflow.results import TABLES
from infoflow.training import CLOCKS

from ..measures import CHECKPOINT_CHECKS

_CLOCKS = [column.name for column in CLOCKS if column.name != "same_as"]


@dataclass(frozen=True, eq=False)
class CheckpointTables:
    """The tables of the shown models over training, and the times of their checkpoints."""

    tables: ModelTables

    @property
    def models(self) -> ModelSelection:
        return self.tables.models

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Rows over training of the table with this plain name; empty if there are none, or its subject was removed."""
        # A measure's plain table covers finished models only: it is not read, so notes do not mention it.
        table = TABLES.get(name)
        frame = table and self.tables.over_training(name if table.over_training else table.at_checkpoints)
        return pd.DataFrame({"series": []}) if frame is None else frame

    def __contains__(self, name: str) -> bool:
        return len(self[name]) > 0

    @cached_property
    def clocks(self) -> pd.DataFrame:
        """One row per checkpoint with series, update, tokens, progress and lr_share, each a mean over seeds."""
        frames = [self[name] for name in self.tables.names_over_training]
        frames = [frame.reindex(columns=["series", "update", *_CLOCKS]) for frame in frames if "progress" in frame]
        if not frames:
            return pd.DataFrame(columns=["series", "update", *_CLOCKS])
        every = pd.concat([frame.drop_duplicates() for frame in frames], ignore_index=True)
        every = every[every["update"] >= 0]
        means = every.groupby(["series", "update"], as_index=False)[_CLOCKS].mean()
        last = means.groupby("series")["update"].transform("max").clip(lower=1)
        return means.assign(progress=means["progress"].fillna(means["update"] / last))

    @cached_property
    def axis(self) -> TimeAxis:
        checks = self[CHECKPOINT_CHECKS.name]
        errors = checks[checks["level"] == "error"] if len(checks) else checks.reindex(columns=["series", "update"])
        return TimeAxis.of(self.clocks, zip(errors["series"].astype(str), errors["update"].astype(int), strict=True))

    @property
    def moments(self) -> list[int]:
        """The sorted updates of all models' checkpoints, where the slider stops."""
        return sorted({int(update) for update in self.clocks["update"]})

    def series(self, frame: pd.DataFrame) -> list[Series]:
        return self.models.present(frame)

    def each(self, frame: pd.DataFrame) -> list[tuple[Series, pd.DataFrame]]:
        """Each series (model) of the page that has rows in `frame`, with these rows."""
        return self.models.each(frame)


def means(frame: pd.DataFrame, by: Sequence[str], values: Iterable[str] = ("value",)) -> pd.DataFrame:
    """Means over seeds and any columns not in `by`; see `band_note` for `low` and `high`."""
    by = ["series", *by, "update"]
    own = frame.dropna(subset=list(values), how="all").reset_index(drop=True)
    grouped = own.groupby(by, sort=True)
    table = grouped[list(values)].mean().assign(seeds=grouped["seed"].nunique()).reset_index()
    ends = _ends(own, by, next(iter(values)))
    return table.merge(ends[[*by, "low", "high"]], on=by, how="left")


def _ends(own: pd.DataFrame, by: list[str], first: str) -> pd.DataFrame:
    """The interval of each mean: over seeds and sentences if rows have their own intervals, otherwise over seeds."""
    sampled = first == "value" and {"low", "high"} <= set(own)
    if sampled and not own.duplicated([*by, "seed"]).any():
        return sampled_bands(own, by)
    ends = seed_bands(own, by, first)
    if sampled and int(ends["seeds"].max()) < 2:  # several rows per seed: the mean of their intervals
        mean = own.groupby(by, sort=False)[["low", "high"]].mean().reset_index()
        return ends.drop(columns=["low", "high"]).merge(mean, on=by)
    return ends


def band_note(table: pd.DataFrame) -> str:
    """What the bands of `means(...)` show."""
    seeds = int(table["seeds"].max()) if len(table) else 0
    return f"{band_words(seeds, known=bool(table['low'].notna().any()))}."


def checkpoints_note(course: CheckpointTables, frame: pd.DataFrame) -> str:
    """The number and range of the checkpoints behind a figure."""
    parts = []
    for series, own in course.each(frame):
        updates = sorted({int(update) for update in own["update"]})
        parts.append((len(updates), updates[0], updates[-1], series.label))
    if len({part[:3] for part in parts}) == 1:
        count, first, last, _ = parts[0]
        return f"{count} checkpoints, from update {first:,} to {last:,}."
    stated = [f"{label} {n}, {f'from {a:,} to {b:,}' if n > 1 else f'at {a:,}'}" for n, a, b, label in parts]
    return f"Checkpoints: {listed(stated)}."


def notes(course: CheckpointTables, table: pd.DataFrame) -> str:
    """`checkpoints_note` and `band_note`, for the start of a caption."""
    return f"{checkpoints_note(course, table)} {band_note(table)}"


def main_stack(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of each model's stack that reads the input: the encoder if there is one."""
    if frame.empty:
        return frame
    stacks = frame.groupby("model")["stack"].agg(lambda own: "encoder" if "encoder" in set(own) else min(map(str, own)))
    return frame[frame["stack"].astype(str) == frame["model"].map(stacks)]


def course_lines(
    course: CheckpointTables,
    rows: pd.DataFrame,
    y: Channel,
    value: str = "value:Q||.3f",
    kinds: Sequence[str] = (),
    **how: Any,
) -> dict[str, Any]:
    """Chart of labelled lines: one dash pattern per value of the column `line` (see `kinds`), or one line per model."""
    series = course.series(rows)
    if "line" in rows:
        names = list(kinds) or list(dict.fromkeys(rows["line"]))
        lines = [
            LineKind(key=name, label=name, dash=DASHES[index % len(DASHES)], shape="circle", mark="")
            for index, name in enumerate(names)
        ]
        by, look, named = "line", looks_of(lines, "line", series[0].color), dict(zip(names, names, strict=True))
    else:
        by, look, named = "series", looks_of(series), {one.key: one.label for one in series}
    stated = tips("line:N|of" if by == "line" else "series:N|model", "update:Q||,", value, "low:Q||.3f", "high:Q||.3f")
    return time_lines(course.axis, rows, y, look, by=by, names=named, tooltip=stated, **how)
