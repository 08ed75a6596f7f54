"""What comes first in training, and what last: events of every model in one table.

    python experiments/studies/over-training/summarise.py runs/over-training experiments/studies/over-training

Writes `events.csv` (a row for each objective and event: the median update over seeds and its range), `convergence.csv`
(when layers settle, states and blocks, and when the null would have), `roles.csv` (heads that hold each role, over
training), and copies of the run's small tables.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.results import RunFolder, Tables

_ALONE = ["findings_since", "phases", "prunable_by_update"]
_KEYS = ["objective", "seed"]


def main(run: str, out: str) -> None:
    tables, folder = RunFolder(run).tables, Path(out)
    events = pd.DataFrame(list(_events(tables)), columns=[*_KEYS, "event", "update"])
    over_seeds = events.groupby(["objective", "event"])["update"].agg(["median", "min", "max", "count"]).reset_index()
    over_seeds.sort_values(["objective", "median"]).round(1).to_csv(folder / "events.csv", index=False)
    _settling(tables).to_csv(folder / "convergence.csv", index=False)
    _roles(tables).to_csv(folder / "roles.csv", index=False)
    for name in _ALONE:
        if name in tables:
            tables[name].drop(columns=["replicates"], errors="ignore").round(4).to_csv(
                folder / f"{name}.csv", index=False
            )
    findings = tables["findings"]
    timed = findings[findings["id"].str.startswith("time:") | (findings["id"] == "heads:M7")]
    timed.drop(columns=["effects", "published", "source"]).round(4).to_csv(folder / "findings.csv", index=False)


def _events(tables: Tables) -> Iterator[tuple]:
    """(objective, seed, event, update)"""
    for row in tables["phases"].itertuples():
        if row.verdict not in ("no change",) and np.isfinite(row.t50):
            yield row.objective, row.seed, f"half of: {row.curve}", row.t50
    for _, own in _ngrams(tables).groupby([*_KEYS, "order", "context"]):
        first = own.iloc[0]
        lowest = own.loc[own["value"].idxmin(), "update"]
        yield *first[_KEYS], f"least divergence from {first['order']}-grams ({first['context']})", float(lowest)
    times = tables["convergence_time"]
    chosen = times[(times["reference"] == "final") & (times["similarity"] == "cka")]
    for _, own in chosen.groupby([*_KEYS, "kind"]):
        first = own.iloc[0]
        for name, value in (("first", own["time"].min()), ("last", own["time"].max())):
            yield *first[_KEYS], f"{name} {first['kind']} settled", value
    if "head_role_events" in tables:
        births = tables["head_role_events"].query("event == 'birth'")
        for _, own in births.groupby([*_KEYS, "role"]):
            first = own.iloc[0]
            yield *first[_KEYS], f"first head: {first['role']}", float(own["after"].min())


def _ngrams(tables: Tables) -> pd.DataFrame:
    frame = tables["ngram_agreement_over_training"]
    return frame[(frame["measure"] == "kl_from_ngram") & (frame["update"] > 0)]


def _settling(tables: Tables) -> pd.DataFrame:
    times = tables["convergence_time"]
    chosen = times[times["similarity"] == "cka"]
    columns = ["objective", "reference", "kind", "layer"]
    return chosen.groupby(columns)[["time", "null_time", "area"]].median().round(3).reset_index()


def _roles(tables: Tables) -> pd.DataFrame:
    turnover = tables["role_turnover"]
    columns = ["objective", "kind", "role", "update"]
    means = turnover.groupby(columns)[["size", "jaccard_previous", "jaccard_final", "expected", "rank_final"]].mean()
    held = means.reset_index()
    kept = held.groupby(["objective", "kind", "role"])["size"].transform("max") > 0
    return held[kept].round(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
