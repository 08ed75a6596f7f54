"""Quantities on readers for the cards of the report's front page."""

import pandas as pd

from infoflow.report._shown_models import ShownModels
from infoflow.report.first._measures import CardMeasure
from infoflow.subjects.adaptation.figures._rows import of

from ..measures import KNOWLEDGE, KNOWLEDGE_LENS
from ._rows import by_exposure, plain_arms


def _documents(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Correct answers on trained facts; `layer` is 0 without a passage, 1 with the right one."""
    rows = of(plain_arms(frame), facts="trained", weight=-1, reading="raw", layer=-1, index="as-trained", metric="p1")
    rows = rows[rows["document"].isin(["none", "gold"])]
    return rows.assign(layer=(rows["document"] == "gold").astype(int))


def _stored(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Bits per fact that are read without a passage; `layer` is the rank of its exposure, from the rarest."""
    rows = of(plain_arms(frame), facts="trained", reading="raw", layer=-1, index="as-trained", metric="bits")
    rows = by_exposure(of(rows, document="none"))
    return rows.assign(layer=rows["place"].astype(int))


def _entering(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """What a lens reads of an answer that appears only in the passage."""
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
        contrast="ends",
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
        contrast="ends",
        opening="From the rarest facts to the most frequent, the information recalled without a passage ",
        rises="rises in {line} by",
        falls="falls in {line} by",
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
        contrast="ends",
        opening="From state {first} to {last}, the probability of an answer that only the passage holds ",
        rises="rises in {line} by",
        falls="falls in {line} by",
        x="state",
    ),
)
