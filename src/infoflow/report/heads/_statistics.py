"""Every amount that the head map can show, from whichever head tables a run has."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

_KEYS = ["series", "seed", "trained", "stack", "kind", "layer", "head"]
_OFFSETS = {-1: "previous token", 1: "next token", 0: "itself"}
GROUPS = ("how sharply", "where", "roles", "does it matter")


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """One of the amounts that the map can show."""

    id: str
    label: str
    unit: str = ""
    explanation: str
    control: str  # what the measure's baseline is
    group: str  # one of GROUPS
    top: float = 1.0  # upper end of the colour scale; the lower end is 0, or −top where signed
    strong: float | None = None  # what counts as a strong head in the sentence
    signed: bool = False
    margin: bool = False  # colours show the value less its baseline


def head_statistics(frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, list[Statistic]]:
    """All head rows in one frame with columns `statistic` and `note`, and what the statistics are, in reading order."""
    parts: list[tuple[pd.DataFrame, list[Statistic]]] = [
        read(frames[name]) for name, read in _READERS.items() if name in frames and len(frames[name])
    ]
    if not parts:
        return pd.DataFrame(), []
    rows = pd.concat([rows for rows, _ in parts], ignore_index=True)
    if "note" not in rows:
        rows["note"] = ""
    measured = set(rows.loc[rows["value"].notna(), "statistic"])
    statistics = [one for _, found in parts for one in found if one.id in measured]
    if "head_positional" in frames:  # the same question, asked of the strongest key; one of the two is enough
        statistics = [one for one in statistics if one.id not in ("surface-previous", "surface-next")]
    return rows.fillna({"note": ""}), sorted(statistics, key=lambda one: GROUPS.index(one.group))


def _confidence(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    statistic = Statistic(
        id="confidence",
        label="confidence",
        explanation="mean strongest attention weight",
        control="uniform attention",
        group="how sharply",
        strong=0.8,
    )
    return frame.assign(statistic="confidence"), [statistic]


def _entropy(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    statistic = Statistic(
        id="entropy",
        label="entropy",
        unit="nats",
        explanation="how widely attention spreads over the sentence",
        control="uniform attention",
        group="how sharply",
        top=_top(frame["value"]),
    )
    return frame.assign(statistic="entropy"), [statistic]


def _positional(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    offsets = sorted(set(frame["offset"]), key=lambda offset: (abs(offset), offset > 0))
    statistics = [
        Statistic(
            id=f"offset{offset:+d}",
            label=_offset_label(offset),
            explanation=f"share of queries whose strongest key is the {_offset_label(offset)}",
            control="a random key",
            group="where",
            strong=0.9,
        )
        for offset in offsets
    ]
    return frame.assign(statistic=[f"offset{offset:+d}" for offset in frame["offset"]]), statistics


def _offset_label(offset: int) -> str:
    return _OFFSETS.get(offset) or f"{abs(offset)} tokens {'ahead' if offset > 0 else 'back'}"


_SURFACE = {
    "self": "itself",
    "previous": "previous token",
    "next": "next token",
    "first": "first token",
    "last": "last token",
    "special": "special tokens",
    "punctuation": "punctuation",
}


def _surface(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    frame = frame.loc[frame["statistic"].isin(_SURFACE)]
    statistics = [
        Statistic(
            id=f"surface-{name}",
            label=label,
            explanation=f"mean share of attention on: {label}",
            control="uniform attention",
            group="where",
            strong=0.5,
        )
        for name, label in _SURFACE.items()
    ]
    return frame.assign(statistic="surface-" + frame["statistic"].astype(str)), statistics


def _relations(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    """Of each head the relation in which it beats that relation's best offset by most; by Voita's convention first."""
    conventions = set(frame["convention"])
    convention = "voita" if "voita" in conventions else sorted(conventions)[0]
    own = frame[(frame["convention"] == convention) & ~frame["relation"].isin(["root", "punct", "all"])]
    own = own.assign(margin=own["value"] - own["baseline"]).dropna(subset="margin")
    best = own.sort_values("margin").drop_duplicates(_KEYS, keep="last")
    notes = best["relation"].astype(str) + ", " + best["direction"].astype(str)
    top = _top(best["margin"], least=0.1)
    statistic = Statistic(
        id="relation",
        label="best relation",
        explanation="how much more often the strongest key is the other end of a syntactic relation than a fixed "
        "offset finds it, for the relation in which the head does best",
        control="the relation's best fixed offset",
        group="roles",
        top=top,
        margin=True,
        strong=0.1,
    )
    return best.drop(columns="margin").assign(statistic="relation", note=notes), [statistic]


def _rare_token(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    statistic = Statistic(
        id="rare",
        label="rarest token",
        explanation="how often the strongest key is the sentence's rarest token, above what shuffled frequencies give",
        control="shuffled frequencies",
        group="roles",
        margin=True,
        top=_top(frame["value"] - frame["baseline"], least=0.1),
        strong=0.1,
    )
    return frame[frame["rarest"] == frame["rarest"].min()].assign(statistic="rare"), [statistic]


_PATTERNS = {
    "duplicate": ("share", "same token before", "share of attention on earlier copies of the same token"),
    "induction": ("share", "induction", "share of attention on what followed earlier copies of the token"),
    "prefix": ("all", "prefix matching", "the same from the second repeat on"),
    "copying": ("positive", "copying", "share of tokens whose own logit rises when the head attends to them"),
}


def _patterns(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    parts, statistics = [], []
    for pattern, (score, label, explanation) in _PATTERNS.items():
        parts.append(
            frame[(frame["pattern"] == pattern) & (frame["score"] == score)].assign(statistic=f"pattern-{pattern}")
        )
        statistics.append(
            Statistic(
                id=f"pattern-{pattern}",
                label=label,
                explanation=f"on random tokens that are repeated: {explanation}",
                control="another token" if pattern == "copying" else "uniform attention",
                group="roles",
                strong=0.5,
            )
        )
    return pd.concat(parts), statistics


def _coreference(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    for column in ("mention", "mentions", "type"):
        if column in frame:
            frame = frame.loc[frame[column] == "all"]
    statistic = Statistic(
        id="coreference",
        label="coreference",
        explanation="share of mentions whose strongest key is one of their antecedents",
        control="the measure's baseline",
        group="roles",
    )
    return frame.assign(statistic="coreference"), [statistic]


def _relevance(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    """One statistic per method, normalised over the heads of a layer."""
    parts, statistics = [], []
    for method in dict.fromkeys(frame["method"].astype(str)):
        own = frame[frame["method"] == method]
        own = own[own["normalise"] == own["normalise"].iloc[0]]
        parts.append(own.assign(statistic=f"relevance-{method}"))
        signed = bool(own["value"].min() < -0.02)
        statistics.append(
            Statistic(
                id=f"relevance-{method}",
                label=f"relevance ({method})",
                explanation="the head's share of its layer's relevance for the prediction",
                control="equal shares",
                group="does it matter",
                signed=signed,
                top=_top(own["value"], signed),
            )
        )
    return pd.concat(parts), statistics


def _importance(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    conventions = list(dict.fromkeys(frame["convention"]))
    convention = "paper" if "paper" in conventions else conventions[0]
    own = frame[frame["convention"] == convention]
    statistic = Statistic(
        id="importance",
        label="importance",
        explanation="expected size of the change of the loss per unit of a gate on the head",
        control="the mean head",
        group="does it matter",
        top=_top(own["value"]),
    )
    return own.assign(statistic="importance"), [statistic]


def _ablation(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[Statistic]]:
    """The change of each metric when the head alone goes; one mode per metric, the first."""
    if "removed" in frame:
        frame = frame.loc[frame["removed"] == "head"]
    parts, statistics = [], []
    for metric in dict.fromkeys(frame["metric"].astype(str)):
        own = frame[frame["metric"] == metric]
        mode = str(own["mode"].iloc[0])
        own = own[own["mode"] == mode]
        parts.append(own.assign(statistic=f"ablation-{metric}", note=_significance(own)))
        statistics.append(
            Statistic(
                id=f"ablation-{metric}",
                label=f"{'BLEU' if metric == 'bleu' else metric} without it",
                unit={"loss": "nats", "bleu": "points"}.get(metric, ""),
                explanation=f"how the {metric} changes when this head alone is removed ({mode} ablation)",
                control="the mean head",
                group="does it matter",
                signed=True,
                top=_top(own["value"], True),
            )
        )
    return pd.concat(parts), statistics


def _significance(frame: pd.DataFrame) -> pd.Series:
    if "p_corrected" not in frame:
        return pd.Series("", index=frame.index)
    values = frame["p_corrected"].astype(float)
    texts = [f"p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}, corrected" if np.isfinite(p) else "" for p in values]
    return pd.Series(texts, index=frame.index)


def _top(values: pd.Series, signed: bool = False, least: float = 1e-6) -> float:
    """The largest value, or the largest size; 1 where nothing is known."""
    sizes = values.abs() if signed else values
    return max(float(sizes.max()), least) if bool(sizes.notna().any()) else 1.0


_Reader = Callable[[pd.DataFrame], tuple[pd.DataFrame, list[Statistic]]]
_READERS: dict[str, _Reader] = {
    "head_confidence": _confidence,
    "head_entropy": _entropy,
    "head_positional": _positional,
    "head_surface": _surface,
    "head_relations": _relations,
    "head_rare_token": _rare_token,
    "head_coreference": _coreference,
    "head_patterns": _patterns,
    "head_relevance": _relevance,
    "head_importance": _importance,
    "head_ablation": _ablation,
}
HEAD_TABLES = tuple(_READERS)
