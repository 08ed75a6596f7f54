"""What a method page's figure shows of a table that has more than one figure can hold, or no column `value`."""

import base64
import json
from collections.abc import Callable

import numpy as np
import pandas as pd

from .grids import grid

_MODEL = ["model", "objective", "variant", "architecture", "start", "seed", "update", "trained"]
_CLOCKS = ["tokens", "progress", "lr_share", "same_as"]


def _mean_distance(frame: pd.DataFrame) -> pd.DataFrame:
    """Each head of the masked LM: the mean distance of its attention from that of every other head."""
    own = frame[(frame["objective"] == "masked-lm") & frame["trained"]]
    sides = [
        own.rename(columns={f"layer_{side}": "layer", f"head_{side}": "head", "distance": "value"}) for side in "ab"
    ]
    keys = [*_MODEL, "stack", "kind", "layer", "head"]
    return pd.concat(sides).groupby(keys, as_index=False)["value"].mean()


def _bert_score(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["model"] == "minilm"].drop(columns="random")


def _trees(frame: pd.DataFrame) -> pd.DataFrame:
    own = frame[(frame["model"] == "minilm") & (frame["structure"] == "distance") & (frame["metric"] == "uuas")]
    return own[own["probe"] == "structural"]


def _codelength(frame: pd.DataFrame) -> pd.DataFrame:
    """Compression of parts of speech; the control is that of the control task."""
    own = frame[(frame["model"] == "minilm") & (frame["code"] == "online") & (frame["metric"] == "compression")]
    task, control = (own[own["labels"] == name] for name in ("task", "control"))
    beside = control[["trained", "layer", "value"]].rename(columns={"value": "baseline"})
    return task.drop(columns="baseline").merge(beside, on=["trained", "layer"])


def _tags(frame: pd.DataFrame) -> pd.DataFrame:
    own = frame[frame["tag"].isin(["upos", "deprel"]) & ~frame["model"].str.contains(r"\+")]
    return own.drop(columns=["pools", "neighbours", "metric", "few", "subword"]).assign(stack="encoder")


def _deciles(frame: pd.DataFrame) -> pd.DataFrame:
    """The most frequent, the middle and the rarest tenth of the types, of the causal LMs."""
    names = {0: "most frequent tenth", 4: "fifth tenth", 9: "rarest tenth"}
    own = frame[(frame["objective"] == "causal-lm") & frame["decile"].isin(list(names))]
    return own.assign(words=own["decile"].map(names))[[*_MODEL, *_CLOCKS, "words", *_numbers(own)]]


def _divergence(frame: pd.DataFrame) -> pd.DataFrame:
    own = frame[(frame["objective"] == "causal-lm") & (frame["position"] == -1)]
    return own[[*_MODEL, *_CLOCKS, *_numbers(own)]]


def _numbers(frame: pd.DataFrame) -> list[str]:
    return [name for name in ("value", "low", "high", "baseline", "count", "replicates") if name in frame]


def _preferred(frame: pd.DataFrame) -> pd.DataFrame:
    own = frame[(frame["phenomenon"] == "all") & (frame["metric"] == "preferred")]
    return own.drop(columns=["ties"])


def _coreference(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["mention"] == "all"].drop(columns=["mention", "head_match", "uniform"])


def _attachment(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["model", "trained", "stack", "probe", *_numbers(frame)]]


def _filled_in(frame: pd.DataFrame) -> pd.DataFrame:
    """The mean over relations by layer, of single prompts read by the logit lens."""
    own = frame[(frame["relation"] == "all") & (frame["average"] == "macro") & (frame["lens"] == "logit")]
    own = own[own["ensemble"] == "uniform"]
    return own[["model", "stack", "layer", *_numbers(own)]]


def _source_share(frame: pd.DataFrame) -> pd.DataFrame:
    """The share of the source at each step of the decoder, by ALTI."""
    own = frame[(frame["rule"] == "alti") & (frame["measure"] == "share") & (frame["position"] >= 0)]
    return own[[*_MODEL, "position", *_numbers(own)]]


ROWS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "head_distance": _mean_distance,
    "bert_score_layers": _bert_score,
    "probe_trees": _trees,
    "probe_codelength": _codelength,
    "tag_neighbours": _tags,
    "loss_by_frequency": _deciles,
    "embedding_change": _deciles,
    "prediction_divergence": _divergence,
    "seed_divergence": _divergence,
    "minimal_pairs": _preferred,
    "head_coreference": _coreference,
    "head_probe": _attachment,
    "fill_in": _filled_in,
    "source_contribution": _source_share,
}
"""By table: the rows that `infoflow.plot` draws, with the columns that distinguish them."""


def _previous_token(frame: pd.DataFrame) -> str:
    """The head and sentence in which most tokens look at the one before, the surest of them first."""
    best = max((_attention(row) for row in frame.to_dict("records")), key=lambda one: (one[0], one[3]))
    _, weights, tokens, _, place = best
    return grid(tokens, tokens, weights.tolist(), across=f"{place}: who (rows) looks at whom (columns)")


def _attention(row: dict) -> tuple[float, np.ndarray, list[str], float, str]:
    tokens = [text for text, _ in json.loads(row["queries"])]
    weights = np.frombuffer(base64.b64decode(row["weights"]), np.uint8).reshape(len(tokens), -1) / 255
    before = float((weights[1:].argmax(axis=1) == np.arange(len(tokens) - 1)).mean())
    return before, weights, tokens, row["confidence"], f"Layer {row['layer']}, head {row['head']}"


def _answers(frame: pd.DataFrame) -> str:
    """What the linear probes of each layer say of a few words; dark: right."""
    own = frame[(frame["task"] == "upos") & (frame["probe"] == "linear") & frame["trained"]]
    own = own[own["example"] < 6].sort_values(["example", "layer"])
    names, texts, right = [], [], []
    for _, rows in own.groupby("example"):
        first = rows.iloc[0]
        word = " ".join(str(first["text"]).split()[first["first_start"] : first["first_end"]])
        names.append(f"{word} ({first['gold']})")
        texts.append(rows["said"].astype(str).tolist())
        right.append((rows["said"] == first["gold"]).astype(float).tolist())
    layers = [f"layer {layer}" for layer in sorted(own["layer"].unique())]
    return grid(names, layers, right, texts, across="Word (its part of speech), and what each layer's probe says")


def _stages(phases: pd.DataFrame) -> str:
    """When each score of a translation model has made a tenth, half and nine tenths of its way: medians over seeds."""
    names = {"score under 2-grams": "fluent (score under 2-grams)", "word_by_word": "right words (word by word)",
             "chrf": "chrF", "bleu": "BLEU"}  # fmt: skip
    own = phases[(phases["table"] == "translation_stages") & phases["curve"].isin(list(names))]
    times = own.groupby("curve")[["t10", "t50", "t90"]].median().loc[list(names)].to_numpy()
    texts = [[f"{time:,.0f}" for time in row] for row in times.tolist()]
    shares = ["a tenth", "half", "nine tenths"]
    across = "Update at which this share of the rise is done"
    return grid(list(names.values()), shares, (np.log(times) / np.log(2000)).tolist(), texts, across=across, least=90)


GRIDS: dict[str, Callable[[pd.DataFrame], str]] = {
    "head_examples": _previous_token,
    "probe_examples": _answers,
    "translation_stages": _stages,
}
"""By table: an SVG of single examples or times."""
FILES = {"translation_stages": "phases"}
"""The stored table that holds the rows, if it has another name."""
