"""What is known of every layer at every checkpoint, from whichever tables a run has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from .._figure import Method
from ..knows._convergence import MUTUAL_INFORMATION
from ..knows._distributions import GEOMETRY
from ._course import CheckpointTables, means

_MOST = 14  # measures to choose from


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerMeasure:
    """One of the measures that the figure can show."""

    id: str
    label: str
    unit: str
    asks: str
    method: Method
    rows: pd.DataFrame  # series, layer, update, value, low, high, seeds
    table: str


def layer_measures(course: CheckpointTables) -> list[LayerMeasure]:
    """In reading order: those that vary."""
    found = [measure for read in _READERS for measure in read(course)]
    return [measure for measure in found if len(measure.rows) and len(set(measure.rows["update"])) > 1][:_MOST]


def main_stack(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each model the stack that reads the input: the encoder where there is one."""
    if "stack" not in frame or frame.empty:
        return frame
    stacks = frame.groupby("model")["stack"].agg(lambda own: "encoder" if "encoder" in set(own) else min(map(str, own)))
    return frame[frame["stack"].astype(str) == frame["model"].map(stacks)]


_LAYER_METHOD = Method(
    id="layers-over-training",
    title="Measures over training",
    text="""
    Each number is what an analysis of that checkpoint alone gives with the same settings: the same sentences and
    occurrences, clusters fitted anew with the same seed. Settings are lighter than those of the other sections (fewer
    occurrences), so that values of information and dimension cannot be compared with theirs.
    """,
)


def _information(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = main_stack(course["mutual_information"])
    if frame.empty:
        return
    hidden = set(frame.loc[frame["regime"] == "training", "series"])
    output = (frame["side"] == "output") & ((frame["regime"] == "training") == frame["series"].isin(hidden))
    for id, label, asks, rows in (
        (
            "information-input",
            "information: input",
            "How much of the input token can be read from its vector?",
            (frame["side"] == "input") & (frame["regime"] == "clean"),
        ),
        ("information-output", "information: output", "How much of the token to predict can be read from it?", output),
        (
            "information-hidden",
            "information: input, corrupted",
            "How much of the token that goes in, with inputs corrupted as in training?",
            (frame["side"] == "input") & (frame["regime"] == "training"),
        ),
    ):
        table = means(frame[rows], ["layer"])
        facts = {"unit": "nats", "method": MUTUAL_INFORMATION, "table": "mutual_information"}
        yield LayerMeasure(id=id, label=label, asks=asks, rows=table, **facts)


def _change(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = main_stack(course["layer_distance"])
    if frame.empty:
        return
    yield LayerMeasure(
        id="change",
        label="change to the next layer",
        unit="1 − PWCCA",
        asks="How far is each layer from the next one? Layer 0 is the step from the embeddings to layer 1.",
        method=_LAYER_METHOD,
        rows=means(frame, ["layer"]),
        table="layer_distance",
    )


_ASKED = {
    "average_similarity": "How alike are random occurrences (mean cosine)?",
    "self_similarity": "How alike are the occurrences of one word?",
    "intra_sentence_similarity": "How alike are the words of a sentence?",
    "explainable_variance": "How much of a word's variance lies along one direction?",
    "intrinsic_dimension": "How many dimensions does the cloud have, by two nearest neighbours?",
    "rogue_dimensions": "Which share of the anisotropy do three dimensions carry?",
}


def _geometry(course: CheckpointTables) -> Iterator[LayerMeasure]:
    for name in ("geometry", "dimension"):
        frame = main_stack(course[name])
        if frame.empty or "measure" not in frame:
            continue
        if "space" in frame and "raw" in set(frame["space"]):
            frame = frame[frame["space"] == "raw"]
        if "words" in frame:
            one = "mean" if "mean" in set(frame["words"]) else frame["words"].iloc[0]
            frame = frame[frame["words"].isin([one, "token"])]
        shown = [
            each for each in dict.fromkeys(frame["measure"]) if not str(each).startswith(("shuffled_", "unrelated_"))
        ]
        shown.sort(key=lambda each: list(_ASKED).index(each) if each in _ASKED else 99)
        for measure in shown:
            words = str(measure).replace("_", " ")
            yield LayerMeasure(
                id=str(measure).replace("_", "-"),
                label=words,
                unit="dimensions" if "dimension" in words and "rogue" not in words else "",
                asks=_ASKED.get(str(measure), f"{words[:1].upper()}{words[1:]} of the layer's states."),
                method=GEOMETRY,
                rows=means(frame[frame["measure"] == measure], ["layer"]),
                table=name,
            )


def _spread(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = main_stack(course["effective_rank"])
    if frame.empty:
        return
    yield LayerMeasure(
        id="effective-rank",
        label="effective rank",
        unit="dimensions",
        asks="Over how many directions do the states spread (entropy of the covariance's eigenvalues)?",
        method=_LAYER_METHOD,
        rows=means(frame, ["layer"]),
        table="effective_rank",
    )


def _neighbours(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = main_stack(course["identity_neighbours"])
    if frame.empty:
        return
    asks = "Which share of an occurrence's nearest vectors belongs to the same token?"
    facts = {"unit": "", "method": _LAYER_METHOD, "table": "identity_neighbours"}
    yield LayerMeasure(
        id="identity", label="identity among neighbours", asks=asks, rows=means(frame, ["layer"]), **facts
    )


def _lens(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = main_stack(course["lens"])
    if frame.empty:
        return
    for lens, metric in frame[["lens", "metric"]].drop_duplicates().itertuples(index=False):
        rows = frame[(frame["lens"] == lens) & (frame["metric"] == metric)]
        yield LayerMeasure(
            id=f"lens-{lens}-{metric}".lower().replace(" ", "-").replace("_", "-"),
            label=f"{lens} lens: {metric}",
            unit="nats" if "loss" in str(metric) or "kl" in str(metric).lower() else "",
            asks=f"What would the layer predict if it were the last one ({lens} lens, {metric})? A lens without "
            "training reads early layers badly early on.",
            method=_LAYER_METHOD,
            rows=means(rows, ["layer"]),
            table="lens",
        )


_WEIGHTS = ("from_initial", "from_previous", "cosine_final", "effective_rank")


def _weights(course: CheckpointTables) -> Iterator[LayerMeasure]:
    frame = course["weight_change"]
    if frame.empty:
        return
    frame = frame[(frame["layer"] >= 0) & ((frame["head"] < 0) if "head" in frame else True)]
    if "part" in frame and "block" in set(frame["part"]):
        frame = frame[frame["part"] == "block"]
    frame = main_stack(frame)
    for measure in [name for name in _WEIGHTS if name in set(frame["measure"])] or list(
        dict.fromkeys(frame["measure"])
    ):
        rows, words = frame[frame["measure"] == measure], str(measure).replace("_", " ")
        yield LayerMeasure(
            id=f"weights-{words}".lower().replace(" ", "-"),
            label=f"weights: {words}",
            unit="",
            asks=f"Weights of each block: {words}.",
            method=_LAYER_METHOD,
            rows=means(rows, ["layer"]),
            table="weight_change",
        )


_READERS: tuple[Callable[[CheckpointTables], Iterator[LayerMeasure]], ...] = (
    _information,
    _change,
    _geometry,
    _spread,
    _neighbours,
    _lens,
    _weights,
)
