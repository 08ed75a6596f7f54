"""Figures of sinks: attention to classes of tokens, massive activations, and the loss without them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from infoflow.report._figure import Method, ReportFigure, Section
from infoflow.report._layer_figure import HOW_BANDS, LayerFigure, moves
from infoflow.report._model_tables import ModelTables
from infoflow.report.forms._lines import ANY, POSITIVE, SHARE
from infoflow.results import estimate

from .measures import ATTENTION_SINK, MASSIVE_ABLATION, MASSIVE_ACTIVATION

_METHOD = Method(
    id="sinks",
    title="Sinks and massive activations",
    text="""
    Each token is in one class: the sentence's first token, other special tokens, punctuation, or the rest. Shares of
    attention on the classes add up to 1; the first token's own query is left out. A massive activation is larger than
    100 and at least 1,000 times the median magnitude of the sentence's state (Sun et al. 2024). To see what the largest
    activations do, the four largest of each sentence at one layer are set to zero, or to their mean over the corpus;
    the control does the same with four random ones.
    """,
)
_TOKENS = {
    "first": "first token",
    "special": "further special tokens",
    "punctuation": "punctuation",
    "other": "other tokens",
    "learned": "learned sink",
}
_SHARE = LayerFigure(
    id="attention-sink",
    question="How much attention goes to a sink?",
    table=ATTENTION_SINK,
    axis={"y_title": "share of attention", "x_title": "block", "baseline_name": "uniform attention", "bounds": SHARE},
    noun="the share of attention",
    wording=moves("the share of attention"),
    how_to_read=(
        "Across: blocks. Up: the mean share of a query's attention, over all heads of self-attention. Shares of all "
        "panels add up to 1.",
        f"{HOW_BANDS} The dotted line is a head that attends to all visible tokens equally: in short sentences, the "
        "first token gets much of its attention too.",
    ),
    method=_METHOD,
    claims=("sinks:S1", "sinks:S3"),
    panels="token",
    titles=_TOKENS,
)
_LENGTH = LayerFigure(
    id="sink-values",
    question="Do the values of sinks carry anything?",
    table=ATTENTION_SINK,
    axis={"y_title": "length of values, others = 1", "x_title": "block", "baseline_name": "equally long values",
          "bounds": POSITIVE},
    noun="the length of values",
    wording=moves("the relative length of values"),
    how_to_read=(
        "Up: the length of the values of these tokens, divided by that of other tokens in the same sentence, averaged "
        "over heads. Far below 1, a head that attends to these tokens moves little and does almost nothing.",
        HOW_BANDS,
    ),
    method=_METHOD,
    claims=("sinks:S2",),
    panels="token",
    titles=_TOKENS,
)  # fmt: skip
_LARGEST = LayerFigure(
    id="massive-activations",
    question="How far does the largest activation exceed the others?",
    table=MASSIVE_ACTIVATION,
    axis={"y_title": "log10 of largest / median", "baseline_name": "normal distribution", "bounds": ANY},
    noun="the ratio (log10)",
    wording=moves("log10 of the ratio"),
    how_to_read=(
        "Up: the largest magnitude of a sentence's state, divided by the median magnitude, on a logarithmic scale: 3 "
        "is 1,000 times.",
        f"{HOW_BANDS} The dotted line is what normally distributed activations would give.",
    ),
    method=_METHOD,
    claims=("sinks:S4",),
)
_WITHOUT = LayerFigure(
    id="massive-ablation",
    question="What does the model lose without its largest activations?",
    table=MASSIVE_ABLATION,
    axis={"y_title": "loss change (nats)", "baseline_name": "random activations", "bounds": ANY},
    noun="the loss change",
    wording=moves("the loss change", " nats"),
    how_to_read=(
        "Up: by how much the loss rises when each sentence's largest activations at this layer are set to zero, or to "
        "their mean over the corpus. If zero harms and the mean does not, they act as constant biases.",
        HOW_BANDS,
    ),
    method=_METHOD,
    claims=("sinks:S5",),
    panels="mode",
    titles={"zero": "set to zero", "mean": "set to their mean"},
    one_scale=False,
)
_SECTION = Section(
    id="sinks",
    title="Where does unused attention go?",
    lead="Softmax must attend somewhere. Many heads give most of their attention to one token, which says little. In "
    "large models a few huge activations mark that token.",
    names={
        "attention-sink": "sinks/attention",
        "sink-values": "sinks/values",
        "massive-activations": "sinks/massive",
        "massive-ablation": "sinks/without",
    },
    folded=("sink-values",),
)


def _of_layers(frame: pd.DataFrame, by: Sequence[str] = ("token",)) -> pd.DataFrame:
    keys = ["series", "model", "seed", "trained", "stack", "layer", *by]
    rows = []
    for key, own in frame.groupby(keys, sort=False):
        replicates = np.mean(np.stack(own["replicates"].to_list()), axis=0)
        number = estimate(own["value"].mean(), replicates, own["baseline"].mean(), own["count"].median())
        rows.append(dict(zip(keys, key, strict=True)) | number)
    return pd.DataFrame(rows)


def _logarithms(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = ["value", "low", "high", "baseline"]
    logs = frame[numbers].clip(lower=1e-9).transform(np.log10)
    return frame.assign(**logs, replicates=[np.log10(np.maximum(one, 1e-9)) for one in frame["replicates"]])


def sinks_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run has none of its tables."""
    names = (ATTENTION_SINK.name, MASSIVE_ACTIVATION.name, MASSIVE_ABLATION.name)
    frames = {name: rows for name, frame in tables.some(names).items() if len(rows := tables.models.main(frame))}
    parts: list[tuple[LayerFigure, pd.DataFrame]] = []
    if (sinks := frames.get(ATTENTION_SINK.name)) is not None:
        own = sinks[sinks["kind"] == "self"]
        parts += [(_SHARE, _of_layers(own[own["statistic"] == "share"]))]
        parts += [(_LENGTH, _of_layers(own[own["statistic"] == "value_norm"]))]
    if (massive := frames.get(MASSIVE_ACTIVATION.name)) is not None:
        parts += [(_LARGEST, _logarithms(massive[massive["statistic"] == "largest"]))]
    if (without := frames.get(MASSIVE_ABLATION.name)) is not None:
        parts += [(_WITHOUT, without)]
    figures: list[ReportFigure] = [one.drawn(rows, tables.models.present(rows)) for one, rows in parts if len(rows)]
    return _SECTION.drawn_with(figures, tables.models, frames.values())


SECTIONS = ((133, _SECTION, sinks_section),)
