"""The report's visual language: one colour, line style and marker per objective or model, the same in every figure."""

from dataclasses import dataclass

import pandas as pd

from infoflow.results import RunFolder

# Slots of the palette (see _theme.py): the three main objectives never change colour from one report to the next.
_SLOTS = {"causal-lm": 0, "masked-lm": 1, "translation": 2, "seq2seq": 2}
_LABELS = {
    "causal-lm": "causal LM",
    "masked-lm": "masked LM",
    "seq2seq": "sequence-to-sequence",
}
NUM_SLOTS = 8
_DASHES = ((1, 0), (9, 3), (3, 2), (12, 3, 3, 3), (1, 0), (9, 3), (3, 2), (12, 3, 3, 3))
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

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
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """How one line of a chart looks and what it is called."""

    key: str
    label: str
    slot: int
    second_slot: int | None = None  # a pair of models: its line is drawn in two colours
    variant: int = 0  # another line style and marker in the same colour

    @property
    def color(self) -> str:
        return f"var(--series-{self.slot})"

    @property
    def second_color(self) -> str | None:
        return None if self.second_slot is None else f"var(--series-{self.second_slot})"

    @property
    def dash(self) -> tuple[int, ...]:
        return _DASHES[(self.slot + self.variant) % NUM_SLOTS] if self.second_slot is None else (1, 0)

    @property
    def shape(self) -> str:
        return _SHAPES[(self.slot + self.variant) % NUM_SLOTS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """The models of a run, in reading order.

    In a study the lines are objectives, with seeds (and corpora) as repetitions; elsewhere each model is its own line.
    """

    series: tuple[Series, ...]
    by: str  # the column that names a line: "objective" or "model"
    main_stacks: dict[str, str]  # model → the stack compared across models: the encoder where there is one

    @classmethod
    def of(cls, run: RunFolder) -> "Cast":
        models = _models(run)
        kind = run.read().get("kind")
        repeated = models.duplicated(["objective", "seed"]).any() and kind != "corpora"
        by = "objective" if kind in ("study", "corpora") and not repeated else "model"
        keys = list(dict.fromkeys(models.sort_values("order", kind="stable")[by]))
        objective_of = dict(zip(models[by], models["objective"], strict=True))
        slots = _assign_slots([objective_of[key] for key in keys])
        series = tuple(
            Series(
                key=key,
                label=objective_label(key) if by == "objective" else key,
                slot=slot,
                variant=int("+" in objective_of[key]),
            )
            for key, slot in zip(keys, slots, strict=True)
        )
        return cls(series=series, by=by, main_stacks=_main_stacks(run))

    def named(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with a column `series`, complete keys, and only models that are in the cast."""
        frame = frame.assign(
            trained=frame["trained"].astype(bool) if "trained" in frame else True,
            seed=frame.get("seed", 0),
            series=frame[self.by].astype(str),
        )
        return frame[frame["series"].isin([series.key for series in self.series])]

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


def objective_label(objective: str) -> str:
    """The objective's name in running text; a variant's is its base's and what is different: `NAME+token-dropout`."""
    base, plus, variant = objective.partition("+")
    label = _LABELS.get(base, base)
    return f"{label} with {variant.replace('-', ' ')}" if plus else label


def _models(run: RunFolder) -> pd.DataFrame:
    """model, objective, seed, order: from the tables, else from run.json."""
    frames = [run.tables[name] for name in MEASURE_TABLES if name in run.tables]
    frames += [pd.DataFrame(run.read().get("models", [])).rename(columns={"name": "model"})]
    frames = [frame.dropna(subset="model") for frame in frames if "model" in frame]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame({"model": [], "objective": [], "seed": [], "order": []})
    keys = [frame.reindex(columns=["model", "objective", "seed"]) for frame in frames]
    models = pd.concat(keys, ignore_index=True).drop_duplicates("model").reset_index(drop=True)
    models["model"] = models["model"].astype(str)
    models["objective"] = models["objective"].astype(object).where(models["objective"].notna(), "model").astype(str)
    order = models["objective"].map(lambda name: _SLOTS.get(_base(name), 99) + 0.5 * ("+" in name))
    return models.assign(order=order)


def _base(objective: str) -> str:
    return objective.partition("+")[0]


def _main_stacks(run: RunFolder) -> dict[str, str]:
    stacks: dict[str, set[str]] = {}
    for name in MEASURE_TABLES:
        if name in run.tables and {"model", "stack"} <= set(run.tables[name].columns):
            for model, stack in run.tables[name][["model", "stack"]].drop_duplicates().itertuples(index=False):
                stacks.setdefault(str(model), set()).add(str(stack))
    return {model: "encoder" if "encoder" in names else sorted(names)[0] for model, names in stacks.items()}


def _assign_slots(objectives: list[str]) -> list[int]:
    """The objective's own slot where it is free, else the next free one."""
    taken: list[int] = []
    reserved = {_SLOTS[objective] for objective in objectives if objective in _SLOTS}
    for objective in objectives:
        own = _SLOTS.get(_base(objective))
        if own is not None and "+" in objective:  # a variant has its base's colour and another line style
            taken.append(own)
            continue
        if own is None or own in taken:
            free = [slot for slot in range(NUM_SLOTS) if slot not in taken and slot not in reserved]
            own = free[0] if free else len(taken) % NUM_SLOTS
        taken.append(own)
    return taken
