"""The report's visual language: one colour, line style and marker per objective or model, the same in every figure."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from infoflow.objectives import OBJECTIVES, RETRIEVAL_OBJECTIVES
from infoflow.results import END, KEYS, UNTRAINED, RunFolder, Spec, first_architecture, select, with_keys

FAMILIES: dict[str, tuple[int, ...]] = {
    "predict next": (0, 8, 9, 10),
    "fill in": (1, 11, 12, 13),
    "translate": (2, 14, 15, 16),
    "discriminate": (17, 18, 19, 20),
    "reconstruct": (21, 22, 23, 24),
}
"""Slots of the palette (see `_theme`): objectives of a family have one hue, and differ in lightness, dash and mark."""
_HUES = {"static": "discriminate"}  # families that share the hue of another
_OTHERS = (3, 4, 5, 6, 7)  # of models and objectives that belong to none
NUM_SLOTS = len(_OTHERS) + sum(map(len, FAMILIES.values()))
_SAME = {"seq2seq": "translation"}  # a model that was given may be of this task
# Of objectives that no registry knows, such as those of models from a hub.
_FAMILY_WORDS = {
    "predict next": ("causal", "next-token", "prefix-lm", "permut", "autoregress"),
    "fill in": ("mask", "mlm", "span", "infill", "cloze", "t5", "electra-generator"),
    "translate": ("translat", "seq2seq", "summar"),
    "discriminate": ("discriminat", "replaced", "electra", "next-sentence", "sentence-order", "contrast"),
    "reconstruct": ("denois", "bart", "autoencod"),
    "static": ("skip-gram", "cbow", "static-", "word2vec", "fasttext", "glove"),
}
_LABELS = {
    "causal-lm": "causal LM",
    "masked-lm": "masked LM",
    "masked-lm-nsp": "masked LM and next sentence",
    "masked-lm-sop": "masked LM and sentence order",
    "spanbert": "SpanBERT",
    "electra": "ELECTRA",
    "prefix-lm": "prefix LM",
    "prefix-lm-decoder": "prefix LM of one stack",
    "seq2seq-lm": "LM of a decoder alone",
    "denoise-full": "denoising",
    "denoise-mask": "denoising of masks",
    "replace-spans": "replaced tokens",
    "drop-tokens": "dropped tokens",
    "span-corruption": "span corruption",
    "mass": "MASS",
    "bart": "BART",
    "bilm": "biLM",
    "seq2seq": "sequence-to-sequence",
    "closed-book": "closed book",
    "read-gold": "right passage given",
    "read-random": "random passage given",
    "retrieve-bm25": "BM25",
    "retrieve-frozen": "frozen retriever",
    "retrieve-learned": "learned retriever",
}
_VARIANTS = {
    "null-share": "of the null share alone",
    "cold": "without warm start",
    "stale": "with a stale index",
    "random-token": "and random tokens masked",
    "random-span": "and random spans masked",
    "same-wording": "in shared words",
    "pairs": "about two entities",
    "token-level": "summed out at tokens",
    "rag-sequence": "whose reader writes",
    "rag-token": "whose reader writes, summed out at tokens",
    "exchange-both": "with both parts trained",
    "exchange-reader": "with its reader alone trained",
    "exchange-retriever": "with its retriever alone trained",
    "exchange-neither": "with neither part trained",
}
"""What sets models with passages apart from others of their kind."""
_SLOTS = {"retrieve-learned": 2}  # of names whose next free colour is too near another's
_DASHES = ((1, 0), (9, 3), (3, 2), (12, 3, 3, 3), (6, 2, 1, 2), (14, 5), (2, 4), (8, 2, 2, 2, 2, 2))
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
class Series:
    """How one line of a chart looks and what it is called."""

    key: str
    label: str
    slot: int
    second_slot: int | None = None  # a pair of models: its line is drawn in two colours
    style: int | None = None  # another dash and mark than the slot's own
    solid: bool = False  # without dashes, whatever the style

    @property
    def color(self) -> str:
        return f"var(--series-{self.slot})"

    @property
    def second_color(self) -> str | None:
        return None if self.second_slot is None else f"var(--series-{self.second_slot})"

    @property
    def dash(self) -> tuple[int, ...]:
        return (1, 0) if self.solid or self.second_slot is not None else _DASHES[self._style % len(_DASHES)]

    @property
    def shape(self) -> str:
        return _SHAPES[self._style % len(_SHAPES)]

    @property
    def _style(self) -> int:
        return own_style(self.slot) if self.style is None else self.style


def own_style(slot: int) -> int:
    """Number of the dash and the mark that go with a slot: near colours have different ones."""
    for family, slots in enumerate(FAMILIES.values()):
        if slot in slots:
            return family + 3 * slots.index(slot)
    return slot


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


def objective_label(objective: str, variant: str = "") -> str:
    """The objective's name in running text, with what sets a variant apart."""
    label = _LABELS.get(objective, objective)
    told = _VARIANTS.get(variant) if objective in RETRIEVAL_OBJECTIVES else None
    return f"{label} {told or 'with ' + variant.replace('-', ' ')}" if variant else label


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
    order = [_order(name) + 0.5 * bool(variant) for name, variant in models[["objective", "variant"]].values]
    return models.assign(order=order).drop_duplicates(names)


def _order(objective: str) -> float:
    """Of its line among others: as the registry has it; then families, then the rest."""
    objective = _SAME.get(objective, objective)
    if objective in OBJECTIVES:
        return list(OBJECTIVES).index(objective)
    if objective in RETRIEVAL_OBJECTIVES:
        return 500 + list(RETRIEVAL_OBJECTIVES).index(objective)
    hue = _hue(objective)
    return 1000 + (list(FAMILIES).index(hue) if hue else len(FAMILIES))


def _hue(objective: str) -> str:
    """The family whose hue an objective has: as it declares, else as its name tells; "" where neither does."""
    known = OBJECTIVES.get(objective)
    words = (family for family, words in _FAMILY_WORDS.items() if any(word in objective for word in words))
    family = known.family if known else next(words, "")
    return _HUES.get(family, family)


def _own_slot(objective: str) -> int | None:
    """A registered objective's, in every report: the shade of its hue that its place in the registry gives it."""
    objective = _SAME.get(objective, objective)
    if objective not in OBJECTIVES:
        return _SLOTS.get(objective)
    hue = _hue(objective)
    shades = FAMILIES[hue]
    return shades[[name for name in OBJECTIVES if _hue(name) == hue].index(objective) % len(shades)]


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
    slots = _assign_slots([row["objective"] for row in rows], several=by == "objective")
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
            for model, stack in run.tables[name][["model", "stack"]].drop_duplicates().itertuples(index=False):
                stacks.setdefault(str(model), set()).add(str(stack))
    return {model: "encoder" if "encoder" in names else sorted(names)[0] for model, names in stacks.items()}


def _assign_slots(objectives: list[str], several: bool) -> list[int]:
    """A slot for each: the objective's own, else one of its family's, else the next free one.

    With `several`, an objective that comes again is a variant, in the same colour; else each line has its own.
    """
    taken: list[int] = []
    owned = {name: _own_slot(name) for name in objectives}
    known: dict[str, int] = {}
    for name in objectives:
        slot = known.get(name) if several else None
        if slot is None and (slot := owned[name]) in (None, *taken):
            wanted = [each for each in _slots_for(name, several) if each not in taken]
            free = [each for each in wanted if each not in owned.values()] or wanted
            slot = free[0] if free else len(taken) % NUM_SLOTS
            if several and name in OBJECTIVES and slot not in (own := FAMILIES[_hue(name)]):
                slot = min(own, key=taken.count)  # more relatives than shades: again one of theirs, with another mark
        assert slot is not None
        known[name] = slot
        taken.append(slot)
    return taken


def _slots_for(objective: str, several: bool) -> list[int]:
    """Its family's slots, then all others; of models that were given, the most different colours first."""
    own = FAMILIES.get(_hue(objective), ()) if several else ()
    return [*own, *(range(8) if not several else _OTHERS), *range(8, NUM_SLOTS)]
