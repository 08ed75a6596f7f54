"""The models that claims are tested on: their objectives, and groups of one architecture at one point of training."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import pandas as pd

from infoflow.foundation import did_you_mean
from infoflow.results import END, TABLES, UNTRAINED, AmbiguousModels, Spec, first_architecture, select, with_keys
from infoflow.training import SUFFIX

CAUSAL = Spec("causal-lm")
"""Objectives of causal language models."""
MASKED = Spec("masked-lm")
"""Objectives of masked language models."""
TRANSLATION = Spec("translation")
"""Models of translation."""
TOKEN_DROPOUT = Spec("translation", "token-dropout")
OBJECTIVES = (CAUSAL, MASKED, TRANSLATION)

STATIC = Spec("masked-lm", "static")
NEXT_SENTENCE, NEXT_SENTENCE_STATIC = Spec("masked-lm-nsp"), Spec("masked-lm-nsp", "static")
SENTENCE_ORDER, SPANBERT = Spec("masked-lm-sop"), Spec("spanbert")
ELECTRA, ELECTRA_SELECTED = Spec("electra"), Spec("electra", "selected")
DISTILLATION = Spec("distillation")
DECODER_LM, DENOISE_FULL, DENOISE_MASK = Spec("seq2seq-lm"), Spec("denoise-full"), Spec("denoise-mask")
REPLACE_SPANS, DROP_TOKENS = Spec("replace-spans"), Spec("drop-tokens")
DESHUFFLING, BART = Spec("deshuffling"), Spec("bart")
BART_NOISES = tuple(Spec("bart", noise) for noise in ("masking", "deletion", "infilling", "permutation", "rotation"))
"""Variants of BART with one kind of noise each; BART itself has both kinds that its authors chose."""

CLOSED_BOOK, READ_GOLD, READ_RANDOM = Spec("closed-book"), Spec("read-gold"), Spec("read-random")
RETRIEVE_BM25, RETRIEVE_FROZEN, RETRIEVE_LEARNED = (
    Spec("retrieve-bm25"),
    Spec("retrieve-frozen"),
    Spec("retrieve-learned"),
)
NULL_SHARE = Spec("closed-book", "null-share")
COLD, STALE = (Spec("retrieve-learned", name) for name in ("cold", "stale"))
RAG_SEQUENCE, RAG_TOKEN = (Spec("retrieve-learned", name) for name in ("rag-sequence", "rag-token"))
RANDOM_TOKENS, RANDOM_SPANS = (Spec("retrieve-learned", name) for name in ("random-token", "random-span"))
SAME_BM25, SAME_FROZEN, SAME_LEARNED = (
    Spec(f"retrieve-{name}", "same-wording") for name in ("bm25", "frozen", "learned")
)
GOLD_PAIRS = Spec("read-gold", "pairs")
EXCHANGED = tuple(Spec("retrieve-learned", f"exchange-{parts}") for parts in ("both", "reader", "retriever", "neither"))
"""Named after the parts that come from the trained model; the other parts keep their initial weights."""

NAMES = {
    CAUSAL: "causal LM",
    MASKED: "masked LM",
    TRANSLATION: "translation encoder",
    TOKEN_DROPOUT: "translation encoder trained with token dropout",
    STATIC: "masked LM with static masks",
    NEXT_SENTENCE: "masked LM with next-sentence prediction",
    NEXT_SENTENCE_STATIC: "masked LM with next-sentence prediction and static masks",
    SENTENCE_ORDER: "masked LM with sentence order",
    SPANBERT: "SpanBERT",
    ELECTRA: "ELECTRA",
    ELECTRA_SELECTED: "ELECTRA with its loss on selected tokens alone (electra+selected)",
    DISTILLATION: "distilled masked LM",
    DECODER_LM: "LM of a decoder with an empty encoder",
    DENOISE_FULL: "denoising encoder",
    DENOISE_MASK: "encoder that denoises masks",
    REPLACE_SPANS: "encoder that denoises replaced spans",
    DROP_TOKENS: "encoder that denoises dropped tokens",
    DESHUFFLING: "deshuffling encoder",
    BART: "BART",
    CLOSED_BOOK: "closed-book reader",
    READ_GOLD: "reader of the right passage",
    READ_RANDOM: "reader of random passages",
    RETRIEVE_BM25: "reader with BM25",
    RETRIEVE_FROZEN: "reader with a frozen retriever",
    RETRIEVE_LEARNED: "reader with a learned retriever",
    NULL_SHARE: "reader of only the share without passages (closed-book+null-share)",
    COLD: "reader with a retriever that was not warmed up",
    STALE: "reader with a stale index",
    RAG_SEQUENCE: "reader that writes",
    RAG_TOKEN: "reader that writes, with passages summed out at each token",
    RANDOM_TOKENS: "reader with random tokens masked",
    RANDOM_SPANS: "reader with random spans masked",
    SAME_BM25: "reader with BM25 in a world of shared words",
    SAME_FROZEN: "reader with a frozen retriever in a world of shared words",
    SAME_LEARNED: "reader with a learned retriever in a world of shared words",
    GOLD_PAIRS: "reader of passages about two entities",
    **{one: f"model of exchanged parts ({one.label})" for one in EXCHANGED},
    **{one: f"BART with {one.variant} alone ({one.label})" for one in BART_NOISES},
}


# The models that claims are tested on: models of one architecture at one point of training, and before training.
#
# Readings get model rows only from here, so that no number ever mixes two models of one objective and seed.

Tables = Mapping[str, pd.DataFrame]
Found = TypeVar("Found")


class Absent(Exception):
    """A measurement that a claim needs is missing; the message for the findings table names it."""


class Ambiguous(Absent):
    """Several models were found where one was expected, which is an error even in an optional table."""


class _KeyedTables(Mapping[str, pd.DataFrame]):
    """Tables with all columns that identify models, completed on first use.

    A table that names no architecture comes from an earlier version; its models belong to the first one.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._known = tables, {}
        self.first_architecture = first_architecture(tables)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._known:
            frame = self._tables[name]
            if name == "alignment" and "objective" not in frame:  # as in old tables, which cover only this one
                frame = frame.assign(objective=MASKED.name)
            frame = frame if frame.empty else with_keys(frame)
            columns = [c for c in ("architecture", "architecture_a", "architecture_b") if c in frame]
            unnamed = {c: self.first_architecture for c in columns if not any(frame[c])}
            self._known[name] = _with_python_strings(frame.assign(**unnamed))
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _with_python_strings(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with Python strings: selecting rows is then twice as fast as with columns of Arrow strings."""

    def plain(column: pd.Series) -> pd.Series:
        codes, values = pd.factorize(column)
        shared = np.append(values.to_numpy(dtype=object), [np.nan])
        return pd.Series(shared[codes], index=frame.index, dtype=object)

    return frame.assign(**{name: plain(frame[name]) for name in frame.select_dtypes("string")}).copy()


@dataclass(frozen=True, slots=True, eq=False)
class ModelGroup:
    """One model of each objective and seed, trained from random weights, with its tables."""

    tables: Tables
    architecture: str
    update: int
    _known: dict = field(default_factory=dict, repr=False)  # results found so far, shared by all groups of a run

    def rows(self, name: str, objective: Spec, columns: Iterable[str] = (), *, trained: bool = True) -> pd.DataFrame:
        """The rows of a table about the objective's models, or about the same models before training."""
        frame = self.table(name, ["objective", *columns])
        return self.once((name, objective), lambda: self._select(frame, objective, trained), trained=trained)

    def pairs(
        self, name: str, first: Spec, second: Spec, columns: Iterable[str] = (), *, trained: bool = True
    ) -> pd.DataFrame:
        """The rows of a table of pairs about models of these objectives, always with `first` as model a."""
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
        """The rows of a table over training about the objective's models, at all checkpoints."""
        frame = self.table(name, ["objective", "update", *columns])
        own = {
            "objective": objective.name,
            "variant": objective.variant,
            "architecture": self.architecture,
            "start": "",
        }
        return frame[np.all([frame[column] == value for column, value in own.items()], axis=0)]

    def table(self, name: str, columns: Iterable[str] = ()) -> pd.DataFrame:
        """The whole table with all models, which must have these columns."""
        frame = self.tables.get(name)
        if frame is None or frame.empty:
            raise Absent(f"the table {name} is absent{_made_by(name)}")
        missing = [column for column in columns if column not in frame.columns]
        if missing:
            raise Absent(f"the table {name} has no column {', '.join(missing)}")
        return frame

    def once(self, key: Hashable, find: Callable[[], Found], *, trained: bool) -> Found:
        """The result of `find`, computed once; for untrained models, once for all updates of an architecture."""
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
    """The groups of models in the named tables: the first architecture and the end of training come first.

    Without any trained model, there is one empty group.
    """
    keyed = _KeyedTables(tables)
    found = dict.fromkeys(place for name in names if name in keyed for place in _places(keyed[name]))
    found = found or {(keyed.first_architecture, END): None}
    order = list(dict.fromkeys([keyed.first_architecture, *(architecture for architecture, _ in found)]))
    places = sorted(found, key=lambda place: (order.index(place[0]), place[1] != END, place[1]))
    known: dict = {}
    return [ModelGroup(keyed, architecture, update, known) for architecture, update in places]


def group_of(tables: Tables, architecture: str, update: int) -> ModelGroup:
    """The models of one architecture and update, from tables that cover no others."""
    return ModelGroup(_KeyedTables(tables), architecture, update)


def _places(frame: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Architectures and updates of a table's trained models; in a table of pairs, those of the first model.

    Tables over training are read as a whole and count for the end of training.
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


def _made_by(name: str) -> str:
    """What produces the table, as text to append to a sentence; "" if every study makes it."""
    measured = TABLES.get(name.removesuffix(SUFFIX))
    if measured is None:
        return f": infoflow makes no such table.{did_you_mean(name, TABLES)}"
    needs = [measured.made_by] if measured.made_by else []
    if name.endswith(SUFFIX):
        heavy = "" if measured.light else f" and {measured.name} in its light or heavy list"
        needs.append(f"a plan with a schedule in [checkpoints]{heavy} makes it at checkpoints")
    return ": " + "; ".join(dict.fromkeys(needs)) if needs else ""
