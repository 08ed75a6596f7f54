"""Rows of the retrieval tables as the figures show them, cards of the front page, and methods paragraphs."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.objectives import further_objectives
from infoflow.report._figure import Method
from infoflow.report._in_words import listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import color_of, shape_of
from infoflow.report.forms._lines import ANY, SHARE
from infoflow.report.forms._marks import HOLLOW, Channel, span
from infoflow.report.forms._rows import interval_dots
from infoflow.report.front_page._measures import CardMeasure
from infoflow.subjects.adaptation.figures._rows import averaged, estimated, names_of, of

from ..measures import KNOWLEDGE, KNOWLEDGE_LENS

CONTROL_ARM = "null-share"
_KINDS = {"held out": "held out", "withheld": "withheld"}


def of_readers(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of fact readers, from a table of all kinds of models."""
    return frame[frame["objective"].isin(further_objectives())]


def arms(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of models without a variant, and of the closed-book reader asked without a passage as rarely as others."""
    return frame[frame["variant"].isin(["", CONTROL_ARM])]


def plain_arms(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["variant"] == ""]


def every_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows about all facts of a kind; earlier table versions have only such rows."""
    return frame[frame["weight"] == -1] if "weight" in frame else frame


def by_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows for each exposure of trained facts, then for held-out and withheld facts, with label and rank, in order."""
    weights = sorted({int(one) for one in frame.loc[frame["facts"] == "trained", "weight"] if one > 0})
    named = {("trained", weight): f"{weight}×" for weight in weights}
    named |= {(kind, -1): label for kind, label in _KINDS.items()}
    places = zip(frame["facts"].astype(str), frame["weight"].astype(int), strict=True)
    labels = np.array([named.get(place) for place in places], dtype=object)
    own = frame.assign(exposure=labels)[pd.notna(labels)]
    order = {label: number for number, label in enumerate(named.values())}
    return own.assign(place=own["exposure"].map(order)).sort_values("place", kind="stable")


def drawn(
    frame: pd.DataFrame, by: list[str], models: ModelSelection, bounds: tuple[float, float] = ANY
) -> pd.DataFrame:
    """Mean, interval and name for each model line, trained or not, and each value of `by`; `bounds` limit the mean."""
    return names_of(estimated(averaged(frame, by), by, bounds), models)


def ends_of(rows: pd.DataFrame, *more: float) -> tuple[float, float]:
    """An axis range that contains all intervals and these values."""
    return span(rows[["low", "high", "value"]], more, margin=0.06, flat=0.05)


def share_dots(
    rows: pd.DataFrame, models: ModelSelection, title: str, tooltip: list[Channel], grey: pd.DataFrame, **how: Any
) -> dict[str, Any]:
    """One row per `label`, with its share on an axis from 0 to 1 and a grey cross for the control."""
    series = models.present(rows)
    return interval_dots(
        rows.assign(short=[number(value, 2) for value in rows["value"]]),
        {"color": color_of(series), "shape": shape_of(series)},
        title=title,
        bounds=SHARE,
        tooltip=tooltip,
        grey=grey[grey["label"].isin(rows["label"])],
        **{"domain": (-0.01, 1.02), "step": 30, **how},
    )


def percents(data: pd.DataFrame, models: ModelSelection, **wanted: Any) -> str:
    """`31% in closed book and 80% in DPR`: the value of each trained line."""
    found = [(one.label, mean_of(data, series=one.key, **wanted)) for one in models.present(data)]
    return listed([f"{number(100 * value, 0)}% in {label}" for label, value in found if value is not None])


def seeds_note(data: pd.DataFrame) -> str:
    """A note on what the intervals cover."""
    seeds = int(data["seeds"].max()) if len(data) else 0
    count = int(data["count"].median()) if len(data) else 0
    behind = f"; {count:,} questions per number" if count else ""
    if seeds > 1:
        return f"Means over {seeds} seeds; 95% intervals over seeds and facts{behind}."
    return f"One seed; 95% intervals over facts, {HOLLOW}{behind}."


def mean_of(data: pd.DataFrame, **wanted: Any) -> float | None:
    """The value of a trained line with exactly one row that matches; otherwise None."""
    own = of(data, trained=True, **wanted)
    return float(own["value"].iloc[0]) if len(own) == 1 and np.isfinite(own["value"].iloc[0]) else None


# Quantities on readers for the cards of the report's front page.


def _documents(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Correct answers on trained facts; `layer` is 0 without a passage, 1 with the right one."""
    rows = of(plain_arms(frame), facts="trained", weight=-1, reading="raw", layer=-1, index="as-trained", metric="p1")
    rows = rows[rows["document"].isin(["none", "gold"])]
    return rows.assign(layer=(rows["document"] == "gold").astype(int))


def _stored(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Bits per fact that are read without a passage; `layer` is the rank of the fact's exposure, rarest first."""
    rows = of(plain_arms(frame), facts="trained", reading="raw", layer=-1, index="as-trained", metric="bits")
    rows = by_exposure(of(rows, document="none"))
    return rows.assign(layer=rows["place"].astype(int))


def _entering(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Probability of an answer that only the passage holds, as a lens reads it from each state."""
    rows = of(plain_arms(frame), facts="held out", weight=-1, place="mask", document="gold", metric="probability")
    lens = "tuned" if "tuned" in set(rows["lens"]) else "logit"
    return rows[rows["lens"] == lens]


CARDS = (
    CardMeasure(
        figure="knowledge-arms",
        axis="right answers",
        noun="what the right passage adds",
        section="retrieval",
        question="What does a passage add to memory?",
        table=KNOWLEDGE.name,
        rows=_documents,
        opening="With the right passage, right answers to trained questions ",
        rises="rise in {line} by",
        falls="fall in {line} by",
        percent=True,
        x="passage",
        ends=("none", "right"),
    ),
    CardMeasure(
        figure="stored-bits",
        axis="bits of a fact",
        noun="how much more of frequent facts is stored",
        section="retrieval",
        question="Do readers that can look facts up store less?",
        table=KNOWLEDGE.name,
        rows=_stored,
        opening="From the rarest facts to the most frequent, the information recalled without a passage ",
        unit="bits",
        x="trained",
        ends=("rarely", "often"),
    ),
    CardMeasure(
        figure="evidence-depth",
        axis="probability of the answer",
        bounded=True,
        noun="how far the passage's answer is read",
        section="retrieval",
        question="Where does evidence enter?",
        table=KNOWLEDGE_LENS.name,
        rows=_entering,
        opening="From {span}, the probability of an answer that only the passage holds ",
        x="state",
    ),
)


# Methods paragraphs for the figures of retrieval.

KNOWN = Method(
    id="retrieval-known",
    title="Questions about facts, with and without a document",
    text="""
    Readers with the same initial weights, questions, masks and order are trained to fill in the objects of facts of a
    generated world; they differ in the passages they may read. Facts are trained (1, 4 or 16 times as often as the
    rarest), held out (in a passage, but in no training question) or withheld (nowhere: chance). Tests use wordings
    that do not occur in training. The answer is the most likely of the relation's <i>m</i> objects; a fact's stored
    bits are log<sub>2</sub> <i>m</i> + log<sub>2</sub> <i>p</i>(<i>o</i>), read without a passage. For elicited bits,
    the model first trains for 200 updates on such questions about a quarter of the entities and is then tested on the
    others. A model at chance has 0 bits.
    """,
)
ENTERS = Method(
    id="retrieval-enters",
    title="Where an answer can be read",
    text="""
    <i>P</i><sub>l</sub> is the probability of the right object that a lens reads from state <i>l</i> at the mask. With
    <i>g</i><sub>l</sub> = <i>P</i><sub>l</sub>(passage) − <i>P</i><sub>l</sub>(no passage), half is the first state
    with <i>g</i><sub>l</sub> ≥ <i>g</i><sub>L</sub>/2, and the centre is Σ <i>l</i>·(<i>g</i><sub>l</sub> −
    <i>g</i><sub>l−1</sub>) / Σ (<i>g</i><sub>l</sub> − <i>g</i><sub>l−1</sub>), including downward steps; both are
    undefined where <i>g</i><sub>L</sub> is below .05. The passage is the right one, or the one that the reader ranks
    first. For memory, the gain is <i>P</i><sub>l</sub> without a passage minus a guess. Controls: the untrained
    model, a guess among the relation's objects, and withheld facts.
    """,
)
FLOW = Method(
    id="retrieval-flow",
    title="Attention knocked out, heads removed",
    text="""
    In all heads of a block and of all blocks above it, the tokens left of the arrow may not attend to those right of
    it (evidence: the passage; object: the answer in it). The value is the share of right answers that is lost; the
    control knocks out as many random edges of the same input. The copy score of a head is the share of questions in
    which its largest weight from the mask lies on the answer in the passage while the model gives that answer. Heads
    are removed in the order of that score; the control removes as many other heads, in five draws.
    """,
)
FOUND = Method(
    id="retrieval-found",
    title="Search, and how the reader uses it",
    text="""
    hit@1 is the share of questions whose first passage holds the fact; control: passages drawn at random. π is the
    softmax of the retriever's scores over the candidates and the empty passage ∅, ρ the posterior given the answer.
    log <i>p</i>(<i>y</i>|<i>x</i>) = Σ ρ log <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) − KL(ρ ‖ π): reader term minus
    retriever term. Retrieval utility is log <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) − log <i>p</i>(<i>y</i>|∅,
    <i>x</i>); overlap is the share of a stale index's passages that a fresh one finds too. The memorisation ratio is
    <i>p</i><sub>old</sub> / (<i>p</i><sub>old</sub> + <i>p</i><sub>document</sub>) on passages that contradict a
    trained fact.
    """,
)
LEARNED = Method(
    id="retrieval-learned",
    title="Loss change of retriever and reader",
    text="""
    <i>A</i><sub>i</sub> = Δ<sub>i</sub> ∫ ∂<sub>i</sub><i>L</i>(<i>θ</i> + <i>s</i>Δ) d<i>s</i> between the weights
    before and after some updates, added up over a part of the model; Σ<sub>i</sub> <i>A</i><sub>i</sub> is the change
    of the loss. <i>L</i> = −log Σ<sub><i>z</i></sub> π(<i>z</i>) <i>p</i>(<i>y</i>|<i>z</i>, <i>x</i>) per masked
    token of fixed training queries, whose candidates <i>z</i> are the right passage, the best others by BM25 and ∅,
    the same in all variants and at all updates: with a model's own search, the candidates would change with its
    weights and the loss would jump. A closed book reads only ∅. “What weighs passages” is the scale of fixed scores
    and the score of ∅. After Lan et al. (2019) and Guu et al. (2020).
    """,
)
COURSE = Method(
    id="retrieval-course",
    title="Answers at kept updates",
    text="""
    At evenly spaced updates, the weights are kept, an index is built from them, and the same questions are asked.
    The log-likelihood is log <i>p</i>(<i>y</i>|<i>x</i>) with the passage summed out; the retrieval utility is the
    log-likelihood minus log <i>p</i>(<i>y</i>|∅, <i>x</i>). To see which of the two predicts later answers, each, on
    trained facts, is correlated (Spearman) with the share of right answers about held-out facts at the next kept
    update, over all readers of a seed that read passages. Control: the updates of each training in random order.
    After Guu et al. (2020), appendix D.
    """,
)
ANSWERED = Method(
    id="retrieval-answered",
    title="Questions about real text",
    text="""
    Readers are trained to fill in the answers to questions about passages, one mask per token; they differ in the
    passages they may read. Each mask gets the word with the largest Σ<sub><i>z</i></sub> π(<i>z</i>)
    <i>p</i>(<i>w</i>|<i>z</i>, <i>x</i>); with a single passage, the word with the largest
    <i>p</i>(<i>w</i>|<i>z</i>, <i>x</i>). An answer is exact if it equals a right one apart from case, punctuation
    and articles (as in SQuAD's script). The right passage is the one that the question was asked about; a long
    passage is truncated to a part around its answers. Control: the most frequent right answer, given to all questions.
    """,
)
