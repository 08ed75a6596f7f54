"""Which models a report shows, in which order, and which rows of a table are about them."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from infoflow.results import END, KEYS, UNTRAINED, RunFolder, Spec, first_architecture, select, with_keys

from ._series import Series, assign_slots, objective_label, order_of, own_style

JOIN = " – "  # joins the keys of a pair into one, and a line's key with what it shows

MEASURE_TABLES = (
    "mutual_information",
    "layer_distance",
    "identity_neighbours",
    "position_neighbours",
    "context_neighbours",
    "tag_neighbours",
    "token_map",
    "change_by_frequency",
    "influence_by_frequency",
    "geometry",
    "head_confidence",
    "task_scores",
    "allocation_groups",
    "word_neighbours",
    "probe_scores",
    "probe_codelength",
    "probe_mixing",
    "probe_depth",
    "probe_trees",
    "tuned_scores",
    "tuning_change",
    "tuning_weights",
    "tuning_heads",
    "label_by_layer",
    "probes_after_tuning",
    "layer_swaps",
    "tuning_allocation",
    "task_pruning",
    "task_answers",
    "retrieval_scores",
    "knowledge",
    "knowledge_conflict",
    "knowledge_lens",
    "evidence_flow",
    "evidence_heads",
    "evidence_ablation",
    "retrieval_examples",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownModels:
    """The models that a page shows, in reading order, and which rows of a table are about them.

    In a study the lines are objectives and their variants, with seeds (and corpora) as repetitions: models of its first
    architecture that began from random weights, at the end of their training and before it. Elsewhere each model is its
    own line.
    """

    series: tuple[Series, ...]
    by: str  # what names a line: "objective" or "model"
    main_stacks: dict[str, str]  # model → the stack compared across models: the encoder where there is one
    architecture: str = ""  # of all lines of a study
    further: tuple[str, ...] = ()  # its other architectures
    lines: dict[str, str] = field(default_factory=dict)  # model → the key of its line

    @classmethod
    def of(cls, run: RunFolder, architecture: str = "") -> "ShownModels":
        """The models of the study's first architecture, or of another one: an objective looks the same in all."""
        by = "objective" if run.read().get("kind") in ("study", "corpora") else "model"
        every = listed_models(run)
        first = _first_architecture(run, every)
        empty = cls(series=(), by=by, main_stacks=_main_stacks(run), architecture=architecture or first)
        if by == "objective":
            every = every[(every["start"] == "") & every["update"].isin([END, UNTRAINED])]
        else:
            every = every.assign(architecture=first)
        models = every.assign(series=empty.line_keys(every), further=~every["architecture"].isin([first, ""]))
        models = models.sort_values(["further", "order"], kind="stable")
        ours = models[models["architecture"] == (architecture or first)]
        looks = _series(models.drop_duplicates("series"), by)
        return replace(
            empty,
            series=tuple(series for series in looks if series.key in set(ours["series"])),
            lines=dict(zip(ours["model"], ours["series"], strict=True)),
            further=tuple(dict.fromkeys(models.loc[models["further"], "architecture"])),
        )

    def named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the models that are shown, with the key of their line as `series`, and complete keys.

        In a table of pairs both models are shown ones, and their lines are `series_a` and `series_b`.

        Raises:
            AmbiguousModels: Two of them have one objective and one seed.
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
        """Which rows are about models that the page shows, whatever their objective: the report's only choice."""
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
        """A model that was given has its own; a study's are of one."""
        column = f"architecture{side}"
        return str(rows[column].iloc[0]) if self.by == "model" and column in rows and len(rows) else self.architecture

    def line_keys(self, frame: pd.DataFrame, side: str = "") -> pd.Series:
        """The key of the line that each row belongs to."""
        if self.by == "model" or f"objective{side}" not in frame:
            return frame[f"model{side}"].astype(str)
        ends = zip(frame[f"objective{side}"].astype(str), frame[f"variant{side}"].astype(str), strict=True)
        return pd.Series([Spec(*end).label for end in ends], index=frame.index, dtype=object)

    def main(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Only the stack of each model that is compared across models (all rows where the table knows no stack)."""
        if "stack" not in frame:
            return frame
        return frame[frame["stack"].astype(str) == frame["model"].astype(str).map(self.main_stacks)]

    def others(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The remaining stacks: decoders of encoder-decoder models."""
        return frame.drop(self.main(frame).index) if "stack" in frame else frame.head(0)

    def present(self, *frames: pd.DataFrame) -> list[Series]:
        """The lines that any of the frames has, in reading order."""
        keys = {key for frame in frames for key in frame["series"]}
        return [series for series in self.series if series.key in keys]

    def __getitem__(self, key: str) -> Series:
        return next(series for series in self.series if series.key == key)


def listed_models(run: RunFolder) -> pd.DataFrame:
    """Every model that the tables or run.json know, a row each with its keys and the `order` of its line."""
    frames = [run.tables[name] for name in MEASURE_TABLES if name in run.tables]
    frames += [entries_of_models(run)]
    frames = [frame.dropna(subset="model") for frame in frames if "model" in frame]
    names = [column.name for column in KEYS if column.name != "trained"]
    frames = [frame.reindex(columns=names).drop_duplicates() for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame(columns=[*names, "order"])
    models = pd.concat(frames, ignore_index=True)
    models["model"] = models["model"].astype(str)
    models["objective"] = models["objective"].astype(object).where(models["objective"].notna(), "model").astype(str)
    for name in ("variant", "architecture", "start"):  # objects: a column without any value is one of floats
        models[name] = models[name].astype(object).where(models[name].notna(), "")
    models["update"] = models["update"].fillna(END)
    order = [order_of(name) + 0.5 * bool(variant) for name, variant in models[["objective", "variant"]].values]
    return models.assign(order=order).drop_duplicates(names)


def entries_of_models(run: RunFolder) -> pd.DataFrame:
    """What run.json says of the models, a row each, with the columns of their keys that it has."""
    entries = pd.DataFrame(run.read().get("models", []))
    entries = entries.rename(columns={"name": "model"} if "model" not in entries else {})
    return with_keys(entries) if "objective" in entries else entries


def entries_with_readers(run: RunFolder) -> pd.DataFrame:
    """The same, and a row for each reader with passages: they are no models of run.json, and may have other seeds."""
    entries = entries_of_models(run)
    if "retrieval_runs" not in run.tables or "model" not in entries:
        return entries
    readers = pd.DataFrame(run.tables["retrieval_runs"].rename(columns={"query_tokens": "source_tokens"}))
    return pd.concat([entries, readers[[name for name in readers if name in entries]]])


def seeds_of_lines(entries: pd.DataFrame) -> list[int]:
    """How many seeds each way of training has, fewest first; one of entries that do not say."""
    if "seed" not in entries or entries.empty:
        return [1]
    lines = [name for name in ("objective", "variant") if name in entries]
    counts = entries.groupby(lines, dropna=False)["seed"].nunique() if lines else [entries["seed"].nunique()]
    return sorted(set(map(int, counts)))


def _first_architecture(run: RunFolder, models: pd.DataFrame) -> str:
    named = ["training_runs", "task_scores"]  # in the order of the plan
    tables = {name: run.tables[name] for name in named if name in run.tables}
    return first_architecture(tables) or first_architecture(models)


def _series(models: pd.DataFrame, by: str) -> tuple[Series, ...]:
    rows = models.to_dict("records")
    slots = assign_slots([row["objective"] for row in rows], several=by == "objective")
    return tuple(
        Series(
            key=row["series"],
            label=objective_label(row["objective"], row["variant"]) if by == "objective" else row["series"],
            slot=slot,
            style=own_style(slot) + slots[:place].count(slot) if slot in slots[:place] else None,
        )
        for place, (row, slot) in enumerate(zip(rows, slots, strict=True))
    )


def _main_stacks(run: RunFolder) -> dict[str, str]:
    stacks: dict[str, set[str]] = {}
    for name in MEASURE_TABLES:
        if name in run.tables and {"model", "stack"} <= set(run.tables[name].columns):
            rows = run.tables[name][["model", "stack"]].dropna().astype(str).drop_duplicates()
            for model, stack in rows[rows["stack"] != ""].itertuples(index=False):  # a task's head is of no stack
                stacks.setdefault(model, set()).add(stack)
    return {model: "encoder" if "encoder" in names else sorted(names)[0] for model, names in stacks.items()}
