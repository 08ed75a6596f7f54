"""Which roles each head holds, by the thresholds of `heads.head_roles`."""

import pandas as pd

from infoflow.heads import head_roles

Place = tuple[str, int, str, str]  # series, seed, stack, kind

_TABLES = ("head_positional", "head_relations", "head_rare_token", "head_surface", "head_patterns")


def roles_by_place(frames: dict[str, pd.DataFrame]) -> dict[Place, dict[tuple[int, int], list[str]]]:
    """Names of the roles that each trained head holds, the strongest first, by layer and head; empty without tables."""
    known = {
        name: frame.loc[frame["trained"]].drop(columns="replicates", errors="ignore")
        for name, frame in frames.items()
        if name in _TABLES
    }
    models = {pair for frame in known.values() for pair in zip(frame["series"], frame["seed"], strict=True)}
    found: dict[Place, dict[tuple[int, int], list[str]]] = {}
    for series, seed in sorted(models):
        own = {name: frame.loc[(frame["series"] == series) & (frame["seed"] == seed)] for name, frame in known.items()}
        roles = head_roles(own)
        held = roles.loc[roles["holds"]].sort_values("value", ascending=False)
        for row in held.to_dict("records"):
            heads = found.setdefault((str(series), int(seed), str(row["stack"]), str(row["kind"])), {})
            heads.setdefault((int(row["layer"]), int(row["head"])), []).append(str(row["role"]).replace("-", "−"))
    return found
