"""Every statistic that the head map can show, from the head tables of a run, and the names of heads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import (
    HEAD_ABLATION,
    HEAD_BY_DISTANCE,
    HEAD_CONFIDENCE,
    HEAD_COREFERENCE,
    HEAD_ENTROPY,
    HEAD_IMPORTANCE,
    HEAD_PATTERNS,
    HEAD_POSITIONAL,
    HEAD_RARE_TOKEN,
    HEAD_RELATIONS,
    HEAD_RELEVANCE,
    HEAD_RETRIEVAL,
    HEAD_SURFACE,
)

KINDS = {
    ("encoder", "self"): "encoder self-attention",
    ("decoder", "self"): "decoder self-attention",
    ("decoder", "cross"): "cross-attention",
}


def head_name(row: Mapping[str, Any], label: str, of_seed: bool) -> str:
    """The head's name, `head 3 of layer 2 of causal LM (self-attention, seed 1)`; the seed only if `of_seed`."""
    seed = f", seed {int(row['seed'])}" if of_seed else ""
    kind = kind_label(row["stack"], row["kind"])
    return f"head {int(row['head'])} of layer {int(row['layer'])} of {label} ({kind}{seed})"


def kind_label(stack: str, kind: str) -> str:
    """The name of a kind of attention: `cross-attention`, `decoder self-attention`."""
    return KINDS.get((stack, kind), f"{stack} {kind}-attention")


KEYS = ["series", "seed", "trained", "stack", "kind", "layer", "head"]
_OFFSETS = {-1: "previous token", 1: "next token", 0: "itself"}
GROUPS = ("how sharply", "where", "roles", "does it matter")


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """One of the statistics that the map can show."""

    id: str
    label: str
    unit: str = ""
    explanation: str
    control: str  # meaning of the measure's baseline
    group: str  # one of GROUPS
    top: float = 1.0  # upper end of the colour scale; the lower end is 0, or −top if signed
    strong: float | None = None  # value above which the sentence calls a head strong
    signed: bool = False
    margin: bool = False  # colours show the value minus its baseline


_sharpness = partial(Statistic, control="uniform attention", group="how sharply")
_worth = partial(Statistic, group="does it matter")
_Found = Iterator[tuple[pd.DataFrame, Statistic]]
"""Rows, and their statistic."""


def head_statistics(frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, list[Statistic]]:
    """All head rows in one frame with columns `statistic` and `note`, and the statistics in reading order."""
    readers = [read(frames[name]) for name, read in _READERS.items() if name in frames]
    found = [(own, one) for pairs in readers for own, one in pairs if len(own)]
    if not found:
        return pd.DataFrame(), []
    rows = pd.concat([own.assign(statistic=one.id) for own, one in found], ignore_index=True)
    rows = rows.assign(note=rows["note"].fillna("") if "note" in rows else "")
    measured = set(rows.loc[rows["value"].notna(), "statistic"])
    if HEAD_POSITIONAL.name in frames:  # both describe the strongest key, so one of them is enough
        measured -= {"surface-previous", "surface-next"}
    statistics = [one for _, one in found if one.id in measured]
    return rows, sorted(statistics, key=lambda one: GROUPS.index(one.group))


def _confidence(frame: pd.DataFrame) -> _Found:
    about = "mean strongest attention weight"
    yield frame, _sharpness(id="confidence", label="confidence", explanation=about, strong=0.8)


def _entropy(frame: pd.DataFrame) -> _Found:
    about, top = "how widely attention spreads over the sentence", _top(frame["value"])
    yield frame, _sharpness(id="entropy", label="entropy", unit="nats", explanation=about, top=top)


def _positional(frame: pd.DataFrame) -> _Found:
    for offset in sorted(set(frame["offset"]), key=lambda offset: (abs(offset), offset > 0)):
        label = _OFFSETS.get(offset) or f"{abs(offset)} tokens {'ahead' if offset > 0 else 'back'}"
        about = f"share of queries whose strongest key is {'the ' if offset in _OFFSETS else ''}{label}"
        id, how = f"offset{offset:+d}", {"control": "a random key", "group": "where", "strong": 0.9}
        yield frame[frame["offset"] == offset], Statistic(id=id, label=label, explanation=about, **how)


_SURFACE = {
    "self": "itself",
    "previous": "previous token",
    "next": "next token",
    "first": "first token",
    "last": "last token",
    "special": "special tokens",
    "punctuation": "punctuation",
}


def _surface(frame: pd.DataFrame) -> _Found:
    for name, label in _SURFACE.items():
        about, how = f"mean share of attention on: {label}", {"control": "uniform attention", "group": "where"}
        one = Statistic(id=f"surface-{name}", label=label, explanation=about, strong=0.5, **how)
        yield frame[frame["statistic"] == name], one


def _relations(frame: pd.DataFrame) -> _Found:
    """Each head's best relation, by its margin over the relation's best offset; Voita's convention comes first."""
    conventions = set(frame["convention"])
    convention = "voita" if "voita" in conventions else sorted(conventions)[0]
    own = frame[(frame["convention"] == convention) & ~frame["relation"].isin(["root", "punct", "all"])]
    own = own.assign(margin=own["value"] - own["baseline"]).dropna(subset="margin")
    best = own.sort_values("margin").drop_duplicates(KEYS, keep="last")
    if best.empty:  # all relations have too few edges
        return
    notes = best["relation"].astype(str) + ", " + best["direction"].astype(str)
    least = f"; relations with fewer than {int(best['least'].iloc[0]):,} edges are left out" if "least" in best else ""
    yield (
        best.drop(columns="margin").assign(note=notes),
        Statistic(
            id="relation",
            label="best relation",
            explanation="how much more often the strongest key is the other end of a syntactic relation than a fixed "
            f"offset finds it, for the relation in which the head does best{least}",
            control="the relation's best fixed offset",
            group="roles",
            top=_top(best["margin"], least=0.1),
            margin=True,
            strong=0.1,
        ),
    )


def _rare_token(frame: pd.DataFrame) -> _Found:
    about = "how often the strongest key is the sentence's rarest token, minus the rate of uniform attention"
    how = {"margin": True, "top": _top(frame["value"] - frame["baseline"], least=0.1), "strong": 0.1}
    rows, control = frame[frame["rarest"] == frame["rarest"].min()], "uniform attention"
    yield rows, Statistic(id="rare", label="rarest token", explanation=about, control=control, group="roles", **how)


_PATTERNS = {
    "duplicate": ("share", "same token before", "share of attention on earlier copies of the same token"),
    "induction": ("share", "induction", "share of attention on what followed earlier copies of the token"),
    "prefix": (
        "all",
        "prefix matching",
        "share of attention on what followed earlier copies, from the second repeat on",
    ),
    "copying": ("positive", "copying", "share of tokens whose own logit rises when the head attends to them"),
}


def _patterns(frame: pd.DataFrame) -> _Found:
    for pattern, (score, label, explanation) in _PATTERNS.items():
        control = "another token" if pattern == "copying" else "uniform attention"
        about = f"on repeated random tokens: {explanation}"
        how = {"control": control, "group": "roles", "strong": 0.5, "explanation": about}
        rows = frame[(frame["pattern"] == pattern) & (frame["score"] == score)]
        yield rows, Statistic(id=f"pattern-{pattern}", label=label, **how)


def _coreference(frame: pd.DataFrame) -> _Found:
    for column in [column for column in ("mention", "mentions", "type") if column in frame]:
        frame = frame.loc[frame[column] == "all"]
    about = "share of mentions whose strongest key is one of their antecedents"
    how = {"control": "the measure's baseline", "group": "roles"}
    yield frame, Statistic(id="coreference", label="coreference", explanation=about, **how)


def _retrieval(frame: pd.DataFrame) -> _Found:
    length = int(frame["length"].iloc[0])
    about = f"in texts of {length:,} tokens: how often the strongest key is the token to be copied from far back"
    how = {"control": "the same without the sentence to be copied", "group": "roles", "strong": 0.1}
    yield frame, Statistic(id="retrieval", label="retrieval", explanation=about, **how)


def _by_distance(frame: pd.DataFrame) -> _Found:
    """Attention far back, and attention to the first token from queries that are far from it."""
    for to, label, id in (
        ("every token", "distant tokens", "distant"),
        ("first token", "first token from afar", "sink"),
    ):
        own = frame[frame["to"] == to]
        far = own.groupby("nearest")["count"].sum()
        nearest = int(far[far >= far.max() / 10].index.max())  # the farthest class with enough queries
        about = f"mean share of attention on {'keys' if to == 'every token' else 'the first token'} from a distance of "
        about += f"{nearest:,} tokens"
        how = {"control": "uniform attention", "group": "where", "explanation": about}
        yield own[own["nearest"] == nearest], Statistic(id=id, label=label, strong=0.5, **how)


def _relevance(frame: pd.DataFrame) -> _Found:
    about = "the head's share of its layer's relevance for the prediction"
    for method in dict.fromkeys(frame["method"].astype(str)):
        own = frame[frame["method"] == method]
        own = own[own["normalise"] == own["normalise"].iloc[0]]
        signed = bool(own["value"].min() < -0.02)
        how = {"control": "equal shares", "signed": signed, "top": _top(own["value"], signed)}
        yield own, _worth(id=f"relevance-{method}", label=f"relevance ({method})", explanation=about, **how)


def _importance(frame: pd.DataFrame) -> _Found:
    conventions = list(dict.fromkeys(frame["convention"]))
    own = frame[frame["convention"] == ("paper" if "paper" in conventions else conventions[0])]
    about = "the expected size of the change in loss per unit of a gate on the head"
    how = {"control": "the mean head", "top": _top(own["value"])}
    yield own, _worth(id="importance", label="importance", explanation=about, **how)


def _ablation(frame: pd.DataFrame) -> _Found:
    """Change of each metric when a single head is ablated, in the metric's first mode."""
    if "removed" in frame:
        frame = frame.loc[frame["removed"] == "head"]
    for metric in dict.fromkeys(frame["metric"].astype(str)):
        own = frame[frame["metric"] == metric]
        mode = str(own["mode"].iloc[0])
        own = own[own["mode"] == mode]
        label = f"{'BLEU' if metric == 'bleu' else metric} without the head"
        about = f"how the {metric} changes when this head alone is removed ({mode} ablation)"
        how = {"unit": {"loss": "nats", "bleu": "points"}.get(metric, ""), "control": "the mean head", "signed": True}
        one = _worth(id=f"ablation-{metric}", label=label, explanation=about, top=_top(own["value"], True), **how)
        yield own.assign(note=_significance(own)), one


def _significance(frame: pd.DataFrame) -> pd.Series:
    if "p_corrected" not in frame:
        return pd.Series("", index=frame.index)
    values = frame["p_corrected"].astype(float)
    texts = [f"p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}, corrected" if np.isfinite(p) else "" for p in values]
    return pd.Series(texts, index=frame.index)


def _top(values: pd.Series, signed: bool = False, least: float = 1e-6) -> float:
    """The largest value (absolute if `signed`), at least `least`; 1 if no value is known."""
    sizes = values.abs() if signed else values
    return max(float(sizes.max()), least) if bool(sizes.notna().any()) else 1.0


_READERS: dict[str, Callable[[pd.DataFrame], _Found]] = {
    HEAD_CONFIDENCE.name: _confidence,
    HEAD_ENTROPY.name: _entropy,
    HEAD_POSITIONAL.name: _positional,
    HEAD_SURFACE.name: _surface,
    HEAD_RELATIONS.name: _relations,
    HEAD_RARE_TOKEN.name: _rare_token,
    HEAD_COREFERENCE.name: _coreference,
    HEAD_PATTERNS.name: _patterns,
    HEAD_RETRIEVAL.name: _retrieval,
    HEAD_BY_DISTANCE.name: _by_distance,
    HEAD_RELEVANCE.name: _relevance,
    HEAD_IMPORTANCE.name: _importance,
    HEAD_ABLATION.name: _ablation,
}
HEAD_TABLES = tuple(_READERS)
