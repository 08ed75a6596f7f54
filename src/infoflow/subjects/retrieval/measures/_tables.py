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
# In studies, the key columns of the model come first: the objective, the variant (the difference from the objective's
# plain model), and the update (0: an untrained model).

_FACTS = Column("facts", "string", "", "kind: trained, changed, held out, withheld or later")
_WEIGHT = Column("weight", "int64", "", "relative exposure in training; -1: all facts of the kind")
_DOCUMENT = Column("document", "string", "", "none, gold, random, conflict, retrieved; own: all candidates")
_INDEX = Column("index", "string", "", "as-trained, or edited (with facts changed and added)")
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
        Column("layer", "int64", "", "block whose FFN output is replaced by its mean; -1: none"),
        Column("places", "string", "", 'tokens where the output is replaced: subject or all; "": none'),
        Column(
            "metric",
            "string",
            "",
            "p1: the right object is the likeliest; p1_old, p1_new: the object before or after the edit is the "
            "likeliest; bits: stored bits; nats: -log p of the answer, among the objects of the relation",
        ),
        *estimate_columns("share, bits or nats", "metric value", "a guess among the relation's objects", "questions"),
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
            "old, document: share of answers with that object; memorisation_ratio: old / (old + document); difference: "
            "log-probability of the document's object minus that of the old one",
        ),
        *estimate_columns("share or nats", "value of the metric", "a guess; the untrained model", "questions"),
    ),
)
KNOWLEDGE_LENS = TableSchema(
    name="knowledge_lens",
    version=6,
    description="The layer from which the answer can be read, with each document.",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        _FACTS,
        _WEIGHT,
        _DOCUMENT,
        Column("layer", "int64", "", "state, 0: embeddings; -1: a value of the whole curve"),
        Column("lens", "string", "", "logit, tuned, probe or clusters"),
        Column("place", "string", "", "mask, or the subject's last token"),
        Column(
            "metric",
            "string",
            "",
            "probability, rank (1: first) or p1 of the answer among the relation's objects; accuracy: of the probe; "
            "control: of a probe for permuted objects; half, centre: where the answer enters, see `evidence_entry`, "
            "NaN if it does not; information: of the state's cluster about the answer's first token",
        ),
        *estimate_columns(
            "share, rank, layer or nats",
            "value of the metric; NaN where it cannot be tested",
            "a guess among the relation's objects; for information: permuted objects",
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
            "knock-out: attention edges are forbidden; removal: nothing attends to one token; tracing: noise, then one "
            "output restored; tracing every mention: noise also in sentences that do not answer",
        ),
        Column(
            "what",
            "string",
            "",
            "mask→evidence, query→evidence, evidence→query, mask→subject, mask→object; gold object, "
            "subject in the evidence, subject, another word; ffn or attention at the subject, object or mask; noise: "
            "the noise before anything is restored",
        ),
        Column("scope", "string", "", "block: only this one; upward: this one and all above it; all: all blocks"),
        Column("layer", "int64", "", "block, from 0; -1: all"),
        Column("metric", "string", "", "p1, nats or probability"),
        *estimate_columns(
            "share or nats", "what is lost; tracing: regained", "as many random edges; a random word", "questions"
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
            "attention on evidence, question, special, itself or object; evidence_relative, ...: the same divided by "
            "the group's share of the tokens; copy: share of questions whose largest weight is on the answer in the "
            "evidence and to which the model gives that answer",
        ),
        *estimate_columns("share", "value of the metric", "the same with a random document", "questions"),
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
        *estimate_columns("share or nats", "value of the metric without these heads", "random heads", "questions"),
    ),
)
ATTENTION_RANKING = TableSchema(
    name="attention_ranking",
    version=2,
    description="Does the reader's attention on a passage predict how much the passage helps?",
    made_by="a plan with [retrieval] on = true makes it",
    columns=(
        Column("facts", "string", "", "kind: trained, changed or held out; all: all kinds together"),
        _WEIGHT,
        Column("metric", "string", "", "spearman: correlation with the posterior; hit: the top passage is gold"),
        *estimate_columns("", "metric of the ranking by attention from the mask", "random heads", "queries"),
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
        Column("rank", "int64", "", "rank of the passage by its prior, from 0"),
        Column("passage", "string", "", 'text of the passage; "": the empty passage'),
        Column("gold", "bool", "", "whether the passage holds the fact"),
        Column("prior", "float64", "probability", "probability of the passage before the answer is known"),
        Column("posterior", "float64", "probability", "probability of the passage, given the answer"),
        Column("layer", "int64", "", "state, 0: embeddings"),
        Column("place", "int64", "", "rank of the object in this state, from 0"),
        Column("object", "string", "", "object that the logit lens reads from this state"),
        Column("probability", "float64", "probability", "probability of the object, among the relation's objects"),
    ),
)
EVIDENCE_TABLES = (
    KNOWLEDGE, KNOWLEDGE_CONFLICT, KNOWLEDGE_LENS, EVIDENCE_FLOW, EVIDENCE_HEADS, EVIDENCE_ABLATION, ATTENTION_RANKING,
    RETRIEVAL_EXAMPLES,
)  # fmt: skip
"""All tables of this package."""


def fact_blocks(facts: Sequence[Fact]) -> np.ndarray:
    return block_of(np.array([hash64("fact", fact.number) >> 1 for fact in facts], dtype=np.int64))


# Groups of facts that are measured together, and estimates of each.

EVERY_WEIGHT = -1  # in the column `weight`: all facts of the kind
KINDS = ("trained", "changed", "held out", "withheld", "later")
_WEIGHED = ("trained", "changed")  # kinds with training questions


class FactGroup(NamedTuple):
    """Rows about facts of one kind, with one exposure or all exposures."""

    facts: str
    weight: int
    rows: np.ndarray  # indices


def fact_groups(facts: Sequence[Fact]) -> Iterator[FactGroup]:
    """A group for every kind of fact that occurs and, if the kind has training questions, one for each exposure."""
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
    """One row for every group of facts with a question that counts: the group, `keys`, and the estimate of the mean.

    `values` are (row,); the mean of `baseline` (..., row) is the control. Both are NaN where a question does not count.
    """
    blocks = fact_blocks(facts)
    for group in fact_groups(facts):
        own = values[group.rows]
        if np.isfinite(own).any():
            control = mean_of(np.take(baseline, group.rows, axis=-1))
            numbers = block_mean(own, blocks[group.rows], control, scale)
            yield {"facts": group.facts, "weight": group.weight, **keys, **numbers}


def mean_of(values: np.ndarray) -> float:
    """The mean of all values that are not NaN; NaN if there are none."""
    counted = values[np.isfinite(values)]
    return float(counted.mean()) if len(counted) else float("nan")
