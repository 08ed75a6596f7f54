"""Measures of one retrieval model: one table for each name in `[retrieval] measures`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, final

import pandas as pd

from infoflow._transformers import BertForMaskedLM, EncoderDecoderModel
from infoflow.corpus import FACT_LANGUAGE, Corpus, FactWorld, fact_corpus, generate_grammar
from infoflow.flow import AbstractMeasure, measure
from infoflow.foundation import hash64
from infoflow.models import load_model
from infoflow.representations import TunedLens
from infoflow.results import PROBE_SCORES, RETRIEVAL_SCORES, TableSchema
from infoflow.studies._parts import distinct
from infoflow.subjects.probing.measures import Probe, StructuralProbe

from ..measures import (
    ATTENTION_RANKING,
    DOCUMENTS,
    EVERY_KIND,
    EVIDENCE_ABLATION,
    EVIDENCE_FLOW,
    EVIDENCE_HEADS,
    KNOWLEDGE,
    KNOWLEDGE_CONFLICT,
    KNOWLEDGE_LENS,
    READ_KINDS,
    RETRIEVAL_COURSE,
    RETRIEVAL_EXAMPLES,
    attention_ranking,
    elicited,
    evidence_ablation,
    evidence_flow,
    evidence_heads,
    fact_lens,
    half_of_entities,
    knowledge,
    knowledge_conflict,
    knowledge_lens,
    knowledge_without_ffn,
    retrieval_examples,
)
from ..models import Library, RetrievalModel
from ..settings import OF_TEXT
from ._arm_scores import ArmScores
from ._question_reading import SEARCHES, TextScores
from ._reading_matter import ReadText, read_world
from ._retrieval_arms import ArmModel

_OF_VARIANTS = ("scores", "knowledge")  # all except "pairs", which gets all measures
_HEAVY = 96  # facts of each kind for expensive measures such as ablations
_LIGHT = 48  # the same, for kinds and documents that serve only as a comparison
_PROBED = 600  # sentences
_PROBED_SEED = hash64("probed-language") % 2**31  # differs from the seed of any world
_CLUSTERED = 400  # minimum number of facts of a world: with fewer, there are too few questions for clusters


@final
@dataclass(frozen=True, eq=False)
class ArmInside:
    """A retrieval model, loaded once for all measures."""

    arm: ArmModel
    trained: bool

    @cached_property
    def model(self) -> RetrievalModel:
        """The whole model in evaluation mode."""
        return self.arm.load(self.trained)

    @property
    def reader(self) -> BertForMaskedLM | EncoderDecoderModel:
        """The masked LM or encoder-decoder alone."""
        return self.model.reader

    @property
    def finds(self) -> tuple[str, ...]:
        """("retrieved",) for a trained model that searches, otherwise ().

        Before training, all variants of a seed share one reader. Variants that do not search read passages of "gold" or
        "random".
        """
        return ("retrieved",) if self.trained and self.arm.source in SEARCHES else ()

    @property
    def reading(self) -> RetrievalModel | BertForMaskedLM | EncoderDecoderModel:
        """The model for measures of reading: the whole model if it retrieves documents, otherwise the reader."""
        return self.model if self.finds else self.reader

    def has(self, kind: Any, but: Collection[int] = ()) -> bool:
        """Whether the model's world has facts of a kind about entities other than those in `but`."""
        return any(fact.entity not in but for fact in self.arm.world.world.of_kind(kind))

    @cached_property
    def lens(self) -> TunedLens:
        """The tuned lens, trained once for all measures that use it."""
        return fact_lens(self.reader, *self.about)

    @cached_property
    def own_library(self) -> Library:
        """The world's passages in the model's own index, built once for all searches."""
        own = self.model.passage_library
        return self.arm.world.passage_library() if own is None else own

    @cached_property
    def edited_library(self) -> Library:
        """The passages of the edited index, which is built on first use."""
        return self.arm.world.passage_library(edited=True)

    @property
    def about(self) -> tuple[Any, Any]:
        """World and tokenizer."""
        return self.arm.world.world, self.arm.world.tokenizer


class ArmMeasure(NamedTuple):
    """How one table is computed."""

    schema: TableSchema
    of: Callable[[ArmInside], pd.DataFrame]
    of_reader: bool  # whether variants with the same initial reader share the values before training
    version: int = 1  # increase when the same model yields different numbers


def _scores(inside: ArmInside) -> pd.DataFrame:
    arm, section = inside.arm, inside.arm.section
    first = arm.load(trained=False) if arm.source == "learned" else None
    if isinstance(arm.matter, ReadText):
        return TextScores(inside.model, arm.objective, arm.matter, first).table()
    unread = read_world(section.world(arm.variant), section.world_seed + 1, arm.plan.model.positions)
    before = None if arm.warmed is None else arm.warmed.matter
    return ArmScores(inside.model, arm.objective, arm.world, unread, first, before, inside.edited_library).table()


def arm_course(arm: ArmModel) -> pd.DataFrame:
    """Rows of `RETRIEVAL_COURSE` for all kept updates of a training run."""
    parts = []
    for update in arm.wanted:
        scores = ArmScores(arm.load(update=update), arm.objective, arm.world, arm.world, None)
        parts.append(scores.course().assign(update=update))
    return RETRIEVAL_COURSE.conform(pd.concat(parts, ignore_index=True))


def _knowledge(inside: ArmInside) -> pd.DataFrame:
    """Knowledge of the model as trained and with the edited index.

    A masked LM is also measured after a short training to answer without a document, and with single FFNs ablated.
    """
    own = {"k": inside.arm.objective.k, "level": inside.arm.objective.level}
    parts = [
        knowledge(inside.model, *inside.about, library=inside.own_library, **own),
        knowledge(inside.model, *inside.about, edited=True, library=inside.edited_library, **own),
    ]
    if inside.arm.writes:  # the next measures apply to masks only
        return pd.concat(parts, ignore_index=True)
    taught = elicited(inside.reader, *inside.about, seed=inside.arm.seed).eval()
    read = ("none", "gold") if inside.trained else ("none",)
    parts += [
        knowledge(taught, *inside.about, reading="elicited"),
        knowledge_without_ffn(inside.reader, *inside.about, documents=read),
    ]
    if inside.has("withheld"):
        parts.append(knowledge_without_ffn(inside.reader, *inside.about, kinds=("withheld",)))
    return pd.concat(parts, ignore_index=True)


def _conflict(inside: ArmInside) -> pd.DataFrame:
    return knowledge_conflict(inside.reader, *inside.about, lens=inside.lens)


def _lens(inside: ArmInside) -> pd.DataFrame:
    """`knowledge_lens`, with facts that change later measured separately, so that clusters contain only the others."""
    several = len(inside.arm.world.world.facts) >= _CLUSTERED
    options: Any = {"lens": inside.lens, "documents": (*DOCUMENTS[:-1], *inside.finds), "library": inside.own_library}
    parts = [knowledge_lens(inside.reading, *inside.about, clusters=several, **options)]
    if inside.has("changed", but=half_of_entities(inside.arm.world.world)):
        parts.append(knowledge_lens(inside.reading, *inside.about, kinds=("changed",), probes=False, **options))
    return pd.concat(parts, ignore_index=True)


def _each(inside: ArmInside, measured: Callable[..., pd.DataFrame], *options: dict[str, Any]) -> pd.DataFrame:
    """The measure's table with each of these settings, except those for kinds of facts that the world lacks."""
    own = {"library": inside.own_library}
    known = [one for one in options if "kinds" not in one or inside.has(*one["kinds"])]
    return pd.concat([measured(inside.reading, *inside.about, **own, **one) for one in known], ignore_index=True)


# Each measure: first what claims need, then documents that may not answer, facts that change later, withheld facts.


def _flow(inside: ArmInside) -> pd.DataFrame:
    light, compared = {"facts": _LIGHT}, ("random", "conflict", *inside.finds)
    return _each(
        inside,
        evidence_flow,
        {"facts": _HEAVY},
        {"documents": compared, "methods": ("knock-out",), **light},
        {"kinds": ("changed",), **light},
        {"kinds": ("withheld",), "documents": ("none",), **light},
    )


def _heads(inside: ArmInside) -> pd.DataFrame:
    return _each(
        inside,
        evidence_heads,
        {"documents": ("gold", "random", "none", "conflict", *inside.finds)},
        {"kinds": ("changed",), "documents": ("gold",)},
        {"kinds": ("withheld",), "documents": ("none", "random")},
    )


def _ablation(inside: ArmInside) -> pd.DataFrame:
    """`evidence_ablation`; the heads to ablate are always those that copy most on trained and held-out facts."""
    light = {"ranked_by": READ_KINDS, "facts": _LIGHT}
    return _each(
        inside,
        evidence_ablation,
        {"documents": ("gold", "none", "random"), "facts": _HEAVY},
        {"documents": ("conflict", *inside.finds), **light},
        {"kinds": ("changed",), "documents": ("gold", "none"), **light},
        {"kinds": ("withheld",), "documents": ("none",), **light},
    )


def _ranking(inside: ArmInside) -> pd.DataFrame:
    parts = [attention_ranking(inside.model, *inside.about)]
    if inside.has("changed"):
        changed = attention_ranking(inside.model, *inside.about, kinds=("changed",), ranked_by=READ_KINDS)
        parts.append(changed[changed["facts"] != EVERY_KIND])
    return pd.concat(parts, ignore_index=True)


def _probed(kind: Callable[..., AbstractMeasure], inside: ArmInside) -> pd.DataFrame:
    """What a probe decodes from the reader's states on sentences of the language, which no reader was trained on."""
    (world, tokenizer), warmed, probe = inside.about, inside.arm.warmed, kind(sentences=_PROBED)
    texts = probed_language(world, *([] if warmed is None else [warmed.matter.world]))
    return measure(load_model(inside.reader, tokenizer=tokenizer), texts, [probe])[probe.table.name]


@lru_cache(maxsize=1)
def probed_language(*worlds: FactWorld) -> Corpus:
    """Sentences of the worlds' language with their trees, except those in the worlds' training texts."""
    corpus = distinct(generate_grammar(2 * _PROBED, _PROBED_SEED, FACT_LANGUAGE))
    trained = {text for world in worlds for text in fact_corpus(world).column("text")}
    rows = [row for row, text in enumerate(corpus.column("text")) if text not in trained]
    return corpus.select(rows, corpus.name)


def _examples(inside: ArmInside) -> pd.DataFrame:
    return retrieval_examples(inside.model, *inside.about, k=inside.arm.objective.k, library=inside.own_library)


MEASURED: Mapping[str, ArmMeasure] = {
    "scores": ArmMeasure(RETRIEVAL_SCORES, _scores, of_reader=False, version=3),
    "knowledge": ArmMeasure(KNOWLEDGE, _knowledge, of_reader=False),
    "conflict": ArmMeasure(KNOWLEDGE_CONFLICT, _conflict, of_reader=True),
    "lens": ArmMeasure(KNOWLEDGE_LENS, _lens, of_reader=True),
    "flow": ArmMeasure(EVIDENCE_FLOW, _flow, of_reader=True),
    "heads": ArmMeasure(EVIDENCE_HEADS, _heads, of_reader=True),
    "ablation": ArmMeasure(EVIDENCE_ABLATION, _ablation, of_reader=True, version=2),
    "ranking": ArmMeasure(ATTENTION_RANKING, _ranking, of_reader=False),
    "trees": ArmMeasure(StructuralProbe.table, partial(_probed, StructuralProbe), of_reader=True, version=2),
    "labels": ArmMeasure(PROBE_SCORES, partial(_probed, partial(Probe, "parent")), of_reader=True, version=2),
    "examples": ArmMeasure(RETRIEVAL_EXAMPLES, _examples, of_reader=False),
}
"""Measures by their name in the plan."""


def measured_of(arm: ArmModel) -> list[str]:
    """Names of the measures that the plan requests for a model."""
    requested = arm.section.measures
    if arm.section.corpus:
        return [name for name in requested if name in OF_TEXT]
    wanted = requested if arm.variant in ("", "pairs") else [name for name in requested if name in _OF_VARIANTS]
    return [name for name in wanted if name != "ranking" or arm.source in SEARCHES]
