"""The roles of each head, and the attention on sentences that its panel draws."""

import base64
import json
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import (
    HEAD_PATTERNS,
    HEAD_POSITIONAL,
    HEAD_RARE_TOKEN,
    HEAD_RELATIONS,
    HEAD_SURFACE,
    by_chance,
    head_roles,
    role_function,
)

from .._embedding import packed

Place = tuple[str, int, str, str]  # series, seed, stack, kind

_TABLES = (HEAD_POSITIONAL.name, HEAD_RELATIONS.name, HEAD_RARE_TOKEN.name, HEAD_SURFACE.name, HEAD_PATTERNS.name)


def trained_roles(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """`head_roles` of every trained model, with its series and seed; empty without tables."""
    known = {name: frame.loc[frame["trained"]] for name, frame in frames.items() if name in _TABLES}
    models = {pair for frame in known.values() for pair in zip(frame["series"], frame["seed"], strict=True)}
    parts = []
    for series, seed in sorted(models):
        own = {name: frame.loc[(frame["series"] == series) & (frame["seed"] == seed)] for name, frame in known.items()}
        parts.append(head_roles(own).assign(series=str(series), seed=int(seed)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


NO_FUNCTION = "none of these"
FUNCTION_COLORS = {
    "positional": "var(--series-3)",
    "syntactic": "var(--series-4)",
    "rare token": "var(--series-5)",
    NO_FUNCTION: "var(--control)",
}
"""Colours of the functions of heads, in the order of legends and stacks."""


def function_legend() -> list[dict[str, str]]:
    return [{"label": name, "color": color} for name, color in FUNCTION_COLORS.items()]


def held_functions(roles: pd.DataFrame) -> pd.DataFrame:
    """The function of each head that holds one, by its clearest role: series, seed, place of the head, `function`."""
    place = ["series", "seed", "stack", "kind", "layer", "head"]
    if roles.empty:
        return pd.DataFrame(columns=[*place, "function"])
    held = roles.loc[roles["holds"]]
    held = held.assign(function=held["role"].map(role_function), lead=held["value"] - held["limit"])
    held = held.loc[held["function"] != ""].sort_values("lead", ascending=False)
    return held.drop_duplicates(place)[[*place, "function"]]


def roles_by_place(roles: pd.DataFrame) -> dict[Place, dict[tuple[int, int], list[str]]]:
    """Role names of each head, strongest first, by layer and head."""
    found: dict[Place, dict[tuple[int, int], list[str]]] = {}
    if roles.empty:
        return found
    held = roles.loc[roles["holds"]].sort_values(["series", "seed", "value"], ascending=[True, True, False])
    for row in held.to_dict("records"):
        heads = found.setdefault((row["series"], row["seed"], str(row["stack"]), str(row["kind"])), {})
        heads.setdefault((int(row["layer"]), int(row["head"])), []).append(str(row["role"]).replace("-", "−"))
    return found


def chance_note(roles: pd.DataFrame) -> str:
    """How many of the chosen roles hold, and how many at most would hold by chance."""
    held = int(roles["holds"].sum())
    return (
        "Roles are chosen on one half of the sentences, and confirmed if the whole 95% interval on the other half "
        f"exceeds their limit: {int(roles['chosen'].sum()):,} were chosen and {held:,} confirmed. By chance, at most "
        f"{by_chance(roles):.1f} would be confirmed."
    )


_MOST = 1_500_000  # bytes of all grids' numbers before packing


def examples_by_grid(frame: pd.DataFrame) -> dict[str, tuple[dict[str, Any], str]]:
    """Tokens with each head's order of the sentences, and packed weights and value norms, for each grid.

    Only for trained models of the first seed, since every head adds its own numbers. With many models, each has fewer
    sentences, those with the most confident heads, to keep the page small.
    """
    frame = frame.loc[frame["trained"]]
    frame = frame.loc[frame["seed"] == frame["seed"].min()]
    groups: Any = frame.groupby(["series", "stack", "kind"], sort=False)
    return {
        f"{series}/{stack}/{kind}": _examples(_within(own, _MOST // groups.ngroups))
        for (series, stack, kind), own in groups
    }


def _within(own: pd.DataFrame, most: int) -> pd.DataFrame:
    """The rows of the sentences with the most confident heads, as many as fit into `most` bytes, and at least one."""
    size = own["weights"].str.len().groupby(own["sentence"]).sum() * 3 // 4  # base64
    best = own.groupby("sentence")["confidence"].mean().sort_values(ascending=False, kind="stable").index
    room = size.loc[best].cumsum().to_numpy() <= most
    return own[own["sentence"].isin(best[: max(int(room.sum()), 1)])]


def _examples(own: pd.DataFrame) -> tuple[dict[str, Any], str]:
    layers, heads = int(own["layer"].max()) + 1, int(own["head"].max()) + 1
    sentences, parts = [], []
    for sentence, rows in own.groupby("sentence", sort=True):
        first = rows.iloc[0]
        queries, keys = json.loads(first["queries"]), json.loads(first["keys"])
        sentences.append({"id": int(str(sentence)), "text": first["text"], "queries": queries, "keys": keys})
        parts += _arrays(rows, (layers, heads, len(queries), len(keys)))
    live = {"seed": int(own["seed"].iloc[0]), "sentences": sentences, "order": _order(own, layers, heads)}
    return live, packed(np.concatenate(parts))


def _arrays(rows: pd.DataFrame, shape: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Bytes of one sentence: weights (L, H, T, S), and value norms (L, H, S) over their maximum."""
    layers, heads, num_queries, num_keys = shape
    weights = np.zeros(shape, np.uint8)
    norms = np.zeros((layers, heads, num_keys), np.uint8)
    for row in rows.itertuples():
        layer, head = int(row.layer), int(row.head)  # type: ignore[arg-type]
        stored = np.frombuffer(base64.b64decode(row.weights), np.uint8)
        weights[layer, head] = stored.reshape(num_queries, num_keys)
        lengths = np.asarray(row.value_norms, dtype=float)
        norms[layer, head] = np.rint(255 * lengths / max(lengths.max(), 1e-12))
    return [weights.ravel(), norms.ravel()]


def _order(own: pd.DataFrame, layers: int, heads: int) -> list[list[list[float]]]:
    """For each head, by layer then head: [number of the sentence, confidence in it], most confident first."""
    number = {sentence: index for index, sentence in enumerate(sorted(set(own["sentence"])))}
    order: list[list[list[float]]] = [[] for _ in range(layers * heads)]
    for row in own.sort_values("rank").itertuples():
        order[int(row.layer) * heads + int(row.head)].append([number[row.sentence], round(float(row.confidence), 2)])  # type: ignore[arg-type]
    return order
