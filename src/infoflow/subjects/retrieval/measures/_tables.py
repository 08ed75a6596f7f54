"""Tables about what models store and what they read, and the groups of facts in their rows."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import Scale, UserError, block_of, hash64
from infoflow.results import Column, TableSchema, estimate_columns

from ..models import block_mean

# Tables about what models store and what they read.
#
# In studies the key columns of the model come first: the objective is the arm, the variant is the difference to the
# arm's plain model; update 0 is an untrained model.

_FACTS = Column("facts", "string", "", "kind: trained, changed, held out, withheld or later")
_WEIGHT = Column("weight", "int64", "", "exposures in training relative to others; -1: all of the kind")
_DOCUMENT = Column("document", "string", "", "none, gold, random, conflict, retrieved; own: all candidates")
_INDEX = Column("index", "string", "", "as-trained, or edited: facts changed and added")
_BLOCK = Column("layer", "int64", "", "block, from 0")
_HEAD = (_BLOCK, Column("head", "int64", "", "head, from 0"))

KNOWLEDGE = TableSchema(
    name="knowledge",
    version=2,
    description="What a model answers about facts, with each document: one row per kind of fact, exposure and metric.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        _INDEX,
        Column("reading", "string", "", "raw or elicited; without-ffn: see `layer`"),
        Column("layer", "int64", "", "block whose FFN gives its mean; -1: none"),
        Column("places", "string", "", 'where it does: subject or all tokens; "": none'),
        Column(
            "metric",
            "string",
            "",
            "p1: right object is the first; p1_old, p1_new: object before and after the edit; bits stored; "
            "nats: -log p of the answer, among the objects of the relation",
        ),
        *estimate_columns("share, bits or nats", "of the metric", "a guess among the relation's objects", "questions"),
    ),
)
KNOWLEDGE_CONFLICT = TableSchema(
    name="knowledge_conflict",
    description="Does a model follow a document that contradicts its training?",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        Column("layer", "int64", "", "state of the lens, 0: embeddings; -1: the output"),
        Column(
            "metric",
            "string",
            "",
            "old, document: share that answers so; memorisation_ratio: old / (old + document); difference: "
            "log-probability of the document's object less that of the old one",
        ),
        *estimate_columns("share or nats", "of the metric", "a guess; the untrained model", "questions"),
    ),
)
KNOWLEDGE_LENS = TableSchema(
    name="knowledge_lens",
    version=6,
    description="From which layer the answer can be read, with each document.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        Column("layer", "int64", "", "state, 0: embeddings; -1: of the whole curve"),
        Column("lens", "string", "", "logit, tuned, probe or clusters"),
        Column("place", "string", "", "mask, or the subject's last token"),
        Column(
            "metric",
            "string",
            "",
            "probability, rank (1: first) or p1 of the answer among the relation's objects; probe: "
            "accuracy; control: of objects that changed places; half, centre: where it enters, see `evidence_entry`, "
            "NaN where nothing does; information: of the state's cluster about the answer's first token",
        ),
        *estimate_columns(
            "share, rank, layer or nats",
            "of the metric; NaN where it cannot be tested",
            "a guess among the relation's objects; of information: objects that changed places",
            "questions",
        ),
    ),
)
EVIDENCE_FLOW = TableSchema(
    name="evidence_flow",
    version=2,
    description="What is lost without attention between parts of question and document or without one token, and what "
    "restoring one output regains.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        Column(
            "method",
            "string",
            "",
            "knock-out: attention is blocked; removal: of one token as a key; tracing: noise, then one "
            "output restored; tracing every mention: noise in sentences that do not answer too",
        ),
        Column(
            "what",
            "string",
            "",
            "mask→evidence, query→evidence, evidence→query, mask→subject, mask→object; gold object, "
            "subject in the evidence, subject, another word; ffn or attention at the subject, object or mask; noise: "
            "the noise before anything is restored",
        ),
        Column("scope", "string", "", "block: one; upward: it and all above; all"),
        Column("layer", "int64", "", "block, from 0; -1: all"),
        Column("metric", "string", "", "p1, nats or probability"),
        *estimate_columns(
            "share or nats", "what is lost; regained by tracing", "as many random edges; a random word", "questions"
        ),
    ),
)
EVIDENCE_HEADS = TableSchema(
    name="evidence_heads",
    version=2,
    description="Where each head looks from the mask, and how often it points at the answer that the model gives.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        *_HEAD,
        Column(
            "metric",
            "string",
            "",
            "attention on evidence, question, special, itself or object; the same over its share of "
            "tokens: evidence_relative, ...; copy: share of queries whose largest weight is on the answer in the "
            "evidence and that the model answers so",
        ),
        *estimate_columns("share", "of the metric", "with a random document", "questions"),
    ),
)
EVIDENCE_ABLATION = TableSchema(
    name="evidence_ablation",
    version=2,
    description="Answers after removing the heads that copy most; the control removes as many random other heads.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        Column("removed", "int64", "heads", "how many"),
        Column("metric", "string", "", "p1, or nats: surprise of the right object"),
        *estimate_columns("share or nats", "of the metric, heads by copy score removed", "random heads", "questions"),
    ),
)
ATTENTION_RANKING = TableSchema(
    name="attention_ranking",
    version=2,
    description="Does the reader's attention on a passage predict how much the passage helps?",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        Column("facts", "string", "", "kind: trained, changed or held out; all of them"),
        _WEIGHT,
        Column("metric", "string", "", "spearman: with the posterior; hit: its first is gold"),
        *estimate_columns("", "of attention from the mask on each candidate's evidence", "random heads", "queries"),
    ),
)
RETRIEVAL_EXAMPLES = TableSchema(
    name="retrieval_examples",
    description="Single questions: the passages found, their probabilities, and the answer read from every state.",
    columns=(
        Column("question", "string", "", "its words, with [MASK] for the object"),
        _FACTS,
        _WEIGHT,
        Column("answer", "string", "", "the right object"),
        Column("rank", "int64", "", "of the passage by its prior, from 0"),
        Column("passage", "string", "", 'its text; "": the empty passage'),
        Column("gold", "bool", "", "whether it holds the fact"),
        Column("prior", "float64", "probability", "of the passage, before the answer"),
        Column("posterior", "float64", "probability", "of the passage, given the answer"),
        Column("layer", "int64", "", "state, 0: embeddings"),
        Column("place", "int64", "", "of the object among what the state says, from 0"),
        Column("object", "string", "", "what the logit lens reads there"),
        Column("probability", "float64", "probability", "of it, among the objects"),
    ),
)
EVIDENCE_TABLES = (
    KNOWLEDGE,
    KNOWLEDGE_CONFLICT,
    KNOWLEDGE_LENS,
    EVIDENCE_FLOW,
    EVIDENCE_HEADS,
    EVIDENCE_ABLATION,
    ATTENTION_RANKING,
    RETRIEVAL_EXAMPLES,
)
"""All tables of this package."""


def fact_blocks(facts: Sequence[Fact]) -> np.ndarray:
    """The bootstrap block of each fact."""
    return block_of(np.array([hash64("fact", fact.number) >> 1 for fact in facts], dtype=np.int64))


# Groups of facts that are measured together, and estimates of each.

EVERY_WEIGHT = -1  # in the column `weight`: all facts of the kind
KINDS = ("trained", "changed", "held out", "withheld", "later")
_WEIGHED = ("trained", "changed")  # kinds with training questions


class FactGroup(NamedTuple):
    """Rows about facts of one kind, of one exposure or all."""

    facts: str
    weight: int
    rows: np.ndarray  # indices


def fact_groups(facts: Sequence[Fact]) -> Iterator[FactGroup]:
    """Every kind that occurs; then each exposure of trained and changed facts."""
    kinds, weights = np.array([fact.kind for fact in facts]), np.array([fact.weight for fact in facts])
    for kind in KINDS:
        if (of_kind := kinds == kind).any():
            yield FactGroup(kind, EVERY_WEIGHT, np.flatnonzero(of_kind))
            for weight in np.unique(weights[of_kind]) if kind in _WEIGHED else ():
                yield FactGroup(kind, int(weight), np.flatnonzero(of_kind & (weights == weight)))


def sampled_facts(world: FactWorld, most: int, among: Collection[Fact] | None = None) -> list[Fact]:
    """At most `most` facts of each kind and exposure, the same for every model, in the world's order."""
    among = world.facts if among is None else among
    if most < 1 or not among:
        raise UserError(f"most must be at least 1, and there must be facts. Got {most:,} of {len(among):,} facts.")
    groups: dict[tuple[str, int], list[Fact]] = {}
    for fact in sorted(among, key=lambda one: hash64("measured", one.number)):
        groups.setdefault((fact.kind, fact.weight), []).append(fact)
    return sorted((fact for group in groups.values() for fact in group[:most]), key=lambda one: one.number)


def group_rows(
    facts: Sequence[Fact], values: np.ndarray, baseline: np.ndarray, scale: Scale = "any", **keys: Any
) -> Iterator[dict[str, Any]]:
    """Rows of every group of facts with a question that counts: its keys, the given ones, and the mean's estimate.

    `values` are (row,), `baseline` (..., row), whose mean is the control; NaN where a question does not count.
    """
    blocks = fact_blocks(facts)
    for group in fact_groups(facts):
        own = values[group.rows]
        if np.isfinite(own).any():
            control = mean_of(np.take(baseline, group.rows, axis=-1))
            numbers = block_mean(own, blocks[group.rows], control, scale)
            yield {"facts": group.facts, "weight": group.weight, **keys, **numbers}


def mean_of(values: np.ndarray) -> float:
    """The mean without NaN; NaN if nothing is left."""
    counted = values[np.isfinite(values)]
    return float(counted.mean()) if len(counted) else float("nan")
