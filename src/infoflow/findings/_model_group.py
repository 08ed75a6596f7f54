"""The models that claims are tested on: of one architecture, at one point of their training, and before it.

Readings get rows of models from here alone, so that no number is ever of two models of one objective and seed.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import pandas as pd

from infoflow.results import END, UNTRAINED, AmbiguousModels, Spec, first_architecture, select, with_keys

from ._zoo import CAUSAL as CAUSAL
from ._zoo import MASKED as MASKED
from ._zoo import NAMES as NAMES
from ._zoo import OBJECTIVES as OBJECTIVES
from ._zoo import TOKEN_DROPOUT as TOKEN_DROPOUT
from ._zoo import TRANSLATION as TRANSLATION

Tables = Mapping[str, pd.DataFrame]
Found = TypeVar("Found")


# What makes the tables that not every study has.
_LEFT_OUT = ", and a plan that does not leave it out"
_TREES = f"it needs a corpus with trees: grammar, a CoNLL-U treebank, or text parsed by spaCy{_LEFT_OUT}"
_PRUNING, _DYNAMICS = "a plan that says [pruning] on = true makes it", "a plan that says [dynamics] on = true makes it"
_TUNED = "a plan with tables [[tune]] makes it"
_MADE_BY = {
    "ablation_transfer": "a plan whose [corpus] has a transfer_name, a corpus of another domain, makes it",
    "alignment": "a plan with masked-lm and translation, and [alignment] on = true, makes it",
    "allocation_groups": _DYNAMICS,
    "allocation_heads": _DYNAMICS,
    "allocation_hurting": _DYNAMICS,
    "allocation_reliability": _DYNAMICS,
    "allocation_similarity": _DYNAMICS,
    "allocation_steps": _DYNAMICS,
    "allocation_windows": _DYNAMICS,
    **dict.fromkeys(
        (
            "convergence",
            "convergence_time",
            "effective_rank_over_training",
            "embedding_change_over_training",
            "head_role_events",
            "in_context_learning_over_training",
            "loss_by_frequency_over_training",
            "ngram_agreement_over_training",
            "phases",
            "prediction_divergence_over_training",
            "role_turnover",
            "task_scores_over_training",
            "mutual_information_over_training",
            "translation_stages_over_training",
        ),
        "a plan with a schedule in [checkpoints] makes it",
    ),
    "probe_scores_over_training": "a plan whose [checkpoints] name probe_scores in heavy, with tasks in "
    "[probing], makes it",
    "minimal_pairs_over_training": "a plan whose [checkpoints] name minimal_pairs in heavy, with that task in "
    "[probing], makes it",
    "seed_divergence_over_training": "a plan whose [checkpoints] name seed_divergence in light makes it, of "
    "two seeds or more",
    "domain_loss": "a plan with tables [[tune]] and a [domain] makes it",
    **dict.fromkeys(
        (
            "attention_ranking",
            "evidence_ablation",
            "evidence_flow",
            "evidence_heads",
            "knowledge",
            "knowledge_conflict",
            "knowledge_lens",
            "retrieval_scores",
        ),
        "a plan that says [retrieval] on = true makes it",
    ),
    "bert_score": "infoflow bert-score with pairs that people scored makes it",
    "encoder_context": "infoflow study on the run's folder makes it, without training again",
    "head_coreference": f"it needs a corpus with coreference annotation, such as CoNLL-2012 or CorefUD{_LEFT_OUT}",
    "head_probe": _TREES,
    "head_relations": _TREES,
    "match": "infoflow study on the run's folder makes it, without training again",
    "head_special_gradient": f"it needs a tokenizer with a SEP token{_LEFT_OUT}",
    "prunable_by_update": 'a plan with a schedule in [checkpoints] makes it, and heavy = ["head_pruning_curve"]',
    "pruned_heads": _PRUNING,
    "pruned_roles": _PRUNING,
    "pruning": _PRUNING,
    **dict.fromkeys(("transplant_curves", "transplanted_heads"), "a plan that says [transplant] on = true makes it"),
    "source_contribution_over_training": "a plan with a schedule in [checkpoints] makes it, and heavy = "
    '["source_contribution"]',
    **dict.fromkeys(("layer_swaps", "tuned_scores", "tuning_change", "tuning_heads"), _TUNED),
    "tag_neighbours": "it needs a corpus with tags, such as grammar, a CoNLL-U treebank or a .tagged file" + _LEFT_OUT,
}
_SEVERAL_RUNS = {
    "allocation_corpora": "it needs recordings on several corpora, and a study has one: run one study for each and "
    "compare their folders, infoflow dynamics RUN RUN ...",
    "stages_by_warmup": "it needs two studies that differ in their warm-up alone, one four times as long, with a "
    "schedule in [checkpoints]: compare their folders, infoflow over-scale RUN RUN",
}


class Absent(Exception):
    """What a claim needs was not measured; the message says what, for the findings table."""


class Ambiguous(Absent):
    """More than one model was measured where one was meant: no table that a claim may do without is left out for it."""


class _KeyedTables(Mapping[str, pd.DataFrame]):
    """Tables with all columns that tell models apart, completed when first asked for.

    A table that names no architecture is of an earlier version: its models are of the first one.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._known = tables, {}
        self.first_architecture = first_architecture(tables)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._known:
            frame = self._tables[name]
            if name == "alignment" and "objective" not in frame:  # its models were not named, but always the same
                frame = frame.assign(objective=MASKED.name)
            frame = frame if frame.empty else with_keys(frame)
            columns = [c for c in ("architecture", "architecture_a", "architecture_b") if c in frame]
            unnamed = {c: self.first_architecture for c in columns if not any(frame[c])}
            self._known[name] = frame.assign(**unnamed)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


@dataclass(frozen=True, slots=True, eq=False)
class ModelGroup:
    """One model of each objective and seed, none of which began from another one; and its tables."""

    tables: Tables
    architecture: str
    update: int
    _known: dict = field(default_factory=dict, repr=False)  # what was found, of all groups of a run

    def rows(self, name: str, objective: Spec, columns: Iterable[str] = (), *, trained: bool = True) -> pd.DataFrame:
        """The rows of a table that are about the objective's models, or about the same models before training.

        Raises:
            Absent: The table is absent or lacks one of the columns, or two models have one seed.
        """
        frame = self.table(name, ["objective", *columns])
        return self.once((name, objective), lambda: self._select(frame, objective, trained), trained=trained)

    def pairs(
        self, name: str, first: Spec, second: Spec, columns: Iterable[str] = (), *, trained: bool = True
    ) -> pd.DataFrame:
        """The rows of a table of pairs that are about models of these objectives, `first` always as model a."""
        frame = self.table(name, ["objective_a", "objective_b", *columns])

        def select_both(one: Spec, other: Spec) -> pd.DataFrame:
            return self._select(self._select(frame, one, trained, "_a"), other, trained, "_b")

        def select_pairs() -> pd.DataFrame:
            parts = [select_both(first, second)]
            parts += [select_both(second, first).rename(columns=_other_side)] if first != second else []
            filled = [part for part in parts if not part.empty]
            return pd.concat(filled).sort_index(kind="stable") if filled else parts[0]

        return self.once((name, first, second), select_pairs, trained=trained)

    def course(self, name: str, objective: Spec, columns: Iterable[str] = ()) -> pd.DataFrame:
        """The rows of a table over training that are about the objective's models, at all checkpoints.

        Raises:
            Absent: The table is absent or lacks one of the columns.
        """
        frame = self.table(name, ["objective", "update", *columns])
        own = {
            "objective": objective.name,
            "variant": objective.variant,
            "architecture": self.architecture,
            "start": "",
        }
        return frame[np.all([frame[column] == value for column, value in own.items()], axis=0)]

    def table(self, name: str, columns: Iterable[str] = ()) -> pd.DataFrame:
        """The whole table, of all models, which must have these columns."""
        frame = self.tables.get(name)
        if frame is None or frame.empty:
            made_by = f": {_MADE_BY[name]}" if name in _MADE_BY else ""
            raise Absent(_SEVERAL_RUNS.get(name, f"the table {name} is absent{made_by}"))
        missing = [column for column in columns if column not in frame.columns]
        if missing:
            raise Absent(f"the table {name} has no column {', '.join(missing)}")
        return frame

    def once(self, key: Hashable, find: Callable[[], Found], *, trained: bool) -> Found:
        """What `find` gives, found once: of untrained models once for all updates of an architecture."""
        where = (self.architecture, self.update if trained else UNTRAINED, trained, key)
        if where not in self._known:
            self._known[where] = find()
        return self._known[where]

    def _select(self, frame: pd.DataFrame, objective: Spec, trained: bool, side: str = "") -> pd.DataFrame:
        how = {"variant": objective.variant, "architecture": self.architecture, "side": side}
        try:
            return select(frame, objective.name, update=self.update if trained else UNTRAINED, **how)
        except AmbiguousModels as ambiguous:
            raise Ambiguous(str(ambiguous).rstrip(".")) from None


def model_groups(tables: Tables, names: Iterable[str]) -> list[ModelGroup]:
    """The groups of models that the named tables are about: the first architecture and the end of training first.

    Where they are about no trained model, one group that has none.
    """
    keyed = _KeyedTables(tables)
    found = dict.fromkeys(place for name in names if name in keyed for place in _places(keyed[name]))
    found = found or {(keyed.first_architecture, END): None}
    order = list(dict.fromkeys([keyed.first_architecture, *(architecture for architecture, _ in found)]))
    places = sorted(found, key=lambda place: (order.index(place[0]), place[1] != END, place[1]))
    known: dict = {}
    return [ModelGroup(keyed, architecture, update, known) for architecture, update in places]


def group_of(tables: Tables, architecture: str, update: int) -> ModelGroup:
    """The models of one architecture and update, of tables that are about no others."""
    return ModelGroup(_KeyedTables(tables), architecture, update)


def _places(frame: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Architectures and updates of the trained models that a table is about; of pairs, those of both models.

    Tables over training are read as a whole, at the end of it.
    """
    if "lr_share" in frame.columns:
        frame = frame.assign(update=END)
    for side in ("", "_a"):
        columns = [f"{name}{side}" for name in ("architecture", "update", "start")]
        if set(columns) <= set(frame.columns):
            for architecture, update, start in frame[columns].drop_duplicates().itertuples(index=False, name=None):
                if update != UNTRAINED and start == "":
                    yield str(architecture), int(update)


@cache
def _other_side(column: str) -> str:
    return {"_a": f"{column[:-2]}_b", "_b": f"{column[:-2]}_a"}.get(column[-2:], column)
