"""Which models a report shows, in which order, and which rows of a table belong to them."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from infoflow.results import END, KEYS, RETRIEVAL_RUNS, TRAINING_RUNS, UNTRAINED, RunFolder, Spec, select, with_keys

from ._theme import Series, assign_slots, objective_label, order_of, own_style

JOIN = " – "  # joins the keys of a pair, and a line's key with its content

_KEYS = frozenset(column.name for column in KEYS if column.name != "trained")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSelection:
    """The models that a page shows, in reading order, and the selection of their rows in a table.

    In a study, lines are objectives and their variants, with seeds (and corpora) as repetitions: models of the first
    architecture trained from random weights, at the end of training and before it. In other runs, each model is its own
    line.
    """

    series: tuple[Series, ...]
    by: str  # column that names a line: "objective" or "model"
    main_stacks: dict[str, str]  # model → the stack compared across models: the encoder if there is one
    architecture: str = ""  # shared by all lines of a study
    is_first: bool = True  # whether it is the first one, which also has the rows that name no architecture
    further: tuple[str, ...] = ()  # the study's other architectures
    lines: dict[str, str] = field(default_factory=dict)  # model → the key of its line

    @classmethod
    def of(cls, run: RunFolder, architecture: str = "") -> "ModelSelection":
        """Select the models of the study's first, or another, architecture; an objective's style is the same in all."""
        by = "objective" if run.read().get("kind") in ("study", "corpora") else "model"
        every = listed_models(run)
        first = _first_architecture(run, every)
        empty = cls(
            series=(),
            by=by,
            main_stacks=_main_stacks(run),
            architecture=architecture or first,
            is_first=not architecture,
        )
        if by == "objective":
            every = every[(every["start"] == "") & every["update"].isin([END, UNTRAINED])]
        else:
            every = every.assign(architecture=first)
        models = every.assign(series=empty.line_keys(every), further=~every["architecture"].isin([first, ""]))
        models = models.sort_values(["further", "order"], kind="stable")
        ours = models[models["architecture"].isin([architecture] if architecture else [first, ""])]
        looks = _series(models.drop_duplicates("series"), by)
        return replace(
            empty,
            series=tuple(series for series in looks if series.key in set(ours["series"])),
            lines=dict(zip(ours["model"], ours["series"], strict=True)),
            further=tuple(dict.fromkeys(models.loc[models["further"], "architecture"])),
        )

    def named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the shown models, with the key of their line as `series`, and complete keys.

        In a table of pairs, both models must be shown; their lines are `series_a` and `series_b`.

        Raises:
            AmbiguousModels: Two shown models share an objective and a seed.
        """
        frame = with_keys(frame)
        frame = frame.assign(trained=frame["trained"].astype(bool) if "trained" in frame else True)
        sides = ("_a", "_b") if "model_a" in frame else ("",)
        for side in [side for side in sides if f"model{side}" in frame]:
            frame = frame.loc[self.shown(frame, side)]
            frame = frame.assign(**{f"series{side}": self.line_keys(frame, side)})
            frame = frame.loc[frame[f"series{side}"].isin([series.key for series in self.series])]
        return frame if "seed" in frame or len(sides) > 1 else frame.assign(seed=0)

    def shown(self, frame: pd.DataFrame, side: str = "") -> np.ndarray:
        """Mask of the rows of shown models, whatever their objective; the report selects rows nowhere else."""
        if f"objective{side}" not in frame:
            return np.ones(len(frame), dtype=bool)
        places = np.arange(len(frame))
        rows = frame.set_axis(places)
        parts = [rows] if "corpus_a" not in frame else [own for _, own in rows.groupby(["corpus_a", "corpus_b"])]
        if self.by == "model":
            parts = [own for part in parts for _, own in part.groupby(f"model{side}", sort=False)]
        kept = [
            select(
                part,
                variant=None,
                architecture=self._architecture_of(part, side),
                start="" if self.by == "objective" else None,
                trained=trained,
                side=side,
            ).index
            for part in parts
            for trained in (True, False)
        ]
        return np.isin(places, np.concatenate([places[:0], *kept]))

    def _architecture_of(self, rows: pd.DataFrame, side: str) -> str:
        """An external model's own architecture, or otherwise the study's, which some of its tables may omit."""
        column = f"architecture{side}"
        if column not in rows or rows.empty:
            return self.architecture
        if self.by == "model":
            return str(rows[column].iloc[0])
        named = bool((rows[column] == self.architecture).any())
        return "" if self.is_first and not named else self.architecture

    def line_keys(self, frame: pd.DataFrame, side: str = "") -> pd.Series:
        """The key of each row's line."""
        if self.by == "model" or f"objective{side}" not in frame:
            return frame[f"model{side}"].astype(str)
        ends = zip(frame[f"objective{side}"].astype(str), frame[f"variant{side}"].astype(str), strict=True)
        return pd.Series([Spec(*end).label for end in ends], index=frame.index, dtype=object)

    def main(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the stack of each model that is compared across models; all rows if the table has no stacks."""
        if "stack" not in frame:
            return frame
        return frame[frame["stack"].astype(str) == frame["model"].astype(str).map(self.main_stacks)]

    def others(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The remaining stacks: decoders of encoder–decoder models."""
        return frame.drop(self.main(frame).index) if "stack" in frame else frame.head(0)

    def present(self, *frames: pd.DataFrame) -> list[Series]:
        """The lines that occur in any of the frames, in reading order."""
        keys = {key for frame in frames for key in frame["series"]}
        return [series for series in self.series if series.key in keys]

    def each(self, frame: pd.DataFrame) -> list[tuple[Series, pd.DataFrame]]:
        """The lines that occur in the frame, in reading order, with their rows."""
        return [(series, frame[frame["series"] == series.key]) for series in self.present(frame)]

    def __getitem__(self, key: str) -> Series:
        return next(series for series in self.series if series.key == key)


def listed_models(run: RunFolder) -> pd.DataFrame:
    """All models in the tables or run.json, one row each with its keys and the `order` of its line."""
    frames = [*_tables_of_models(run), entries_of_models(run)]
    frames = [frame.dropna(subset="model") for frame in frames if "model" in frame]
    names = [column.name for column in KEYS if column.name != "trained"]
    frames = [frame.reindex(columns=names).drop_duplicates() for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame(columns=[*names, "order"])
    models = pd.concat(frames, ignore_index=True)
    models["model"] = models["model"].astype(str)
    models["objective"] = models["objective"].astype(object).where(models["objective"].notna(), "model").astype(str)
    for name in ("variant", "architecture", "start"):  # objects: a column without values would be float
        models[name] = models[name].astype(object).where(models[name].notna(), "")
    models["update"] = models["update"].fillna(END)
    order = [order_of(name) + 0.5 * bool(variant) for name, variant in models[["objective", "variant"]].values]
    return models.assign(order=order).drop_duplicates(names)


def _tables_of_models(run: RunFolder) -> list[pd.DataFrame]:
    """Every table with one model per row, identified by its columns."""
    return [frame for name in run.tables if set((frame := run.tables[name]).columns) >= _KEYS]


def entries_of_models(run: RunFolder) -> pd.DataFrame:
    """The models' entries in run.json, one row each, with the available key columns."""
    entries = pd.DataFrame(run.read().get("models", []))
    entries = entries.rename(columns={"name": "model"} if "model" not in entries else {})
    return with_keys(entries) if "objective" in entries else entries


def entries_with_readers(run: RunFolder) -> pd.DataFrame:
    """`entries_of_models`, plus one row per reader of passages, which run.json lacks and which may have other seeds."""
    entries = entries_of_models(run)
    if RETRIEVAL_RUNS.name not in run.tables or "model" not in entries:
        return entries
    readers = pd.DataFrame(run.tables[RETRIEVAL_RUNS.name].rename(columns={"query_tokens": "source_tokens"}))
    return pd.concat([entries, readers[[name for name in readers if name in entries]]])


def seeds_of_lines(entries: pd.DataFrame) -> list[int]:
    """Distinct numbers of seeds per line, in ascending order; [1] if the entries have no seeds."""
    if "seed" not in entries or entries.empty:
        return [1]
    lines = [name for name in ("objective", "variant") if name in entries]
    counts = entries.groupby(lines, dropna=False)["seed"].nunique() if lines else [entries["seed"].nunique()]
    return sorted(set(map(int, counts)))


def _first_architecture(run: RunFolder, models: pd.DataFrame) -> str:
    """The architecture that any table names for the plan's first model; "" if none does.

    If no table names one for it, the first line whose models all have an architecture decides, such as the line of
    readers.
    """
    frames = [run.tables[name] for name in (TRAINING_RUNS.name, "task_scores") if name in run.tables]
    first = next((str(frame["model"].iloc[0]) for frame in frames if "model" in frame and len(frame)), None)
    lines, named = pd.MultiIndex.from_frame(models[["objective", "variant"]]), models["architecture"] != ""
    unnamed = ~models["model"].isin(models.loc[named, "model"])
    known = [models[named & (models["model"] == first)], models[named & ~lines.isin(lines[unnamed])]]
    return next((str(name) for rows in known for name in rows["architecture"]), "")


def _series(models: pd.DataFrame, by: str) -> tuple[Series, ...]:
    rows = models.to_dict("records")
    slots = assign_slots([row["objective"] for row in rows], several=by == "objective")
    return tuple(
        Series(
            key=row["series"],
            label=objective_label(row["objective"], row["variant"]) if by == "objective" else row["series"],
            slot=slot,
            style=own_style(slot) + slots[:index].count(slot) if slot in slots[:index] else None,
        )
        for index, (row, slot) in enumerate(zip(rows, slots, strict=True))
    )


def _main_stacks(run: RunFolder) -> dict[str, str]:
    stacks: dict[str, set[str]] = {}
    for frame in _tables_of_models(run):
        if "stack" in frame:
            rows = frame[["model", "stack"]].dropna().astype(str).drop_duplicates()
            for model, stack in rows[rows["stack"] != ""].itertuples(index=False):  # a task's head belongs to no stack
                stacks.setdefault(model, set()).add(stack)
    return {model: "encoder" if "encoder" in names else sorted(names)[0] for model, names in stacks.items()}
