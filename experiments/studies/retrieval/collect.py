"""Tables and verdicts of a study of retrieval, small enough to commit: CSV files without replicates beside this script.

    infoflow study experiments/studies/retrieval/plan.toml --out runs/retrieval
    python experiments/studies/retrieval/collect.py runs/retrieval

| file | holds |
|---|---|
| `findings.csv` | verdict and effect of each claim of the room |
| `training.csv` | share of training queries that each reader answers, the guess, seconds of its training |
| `knowledge.csv` | right answers and stored bits by arm, document, index, reading and kind of fact |
| `found.csv` | hit, MRR, collapse of what is found, weight of the empty passage, exact match and F1 |
| `conflict.csv` | whose answer is given where the passage contradicts memory |
| `depth.csv` | half and centre: where the answer can be read, with each document |
| `knock_outs.csv` | right answers lost without attention from a block upward |
| `heads.csv` | right answers after the heads that copy most are removed, beside random ones |
| `ranking.csv` | whether attention ranks passages |
| `figures` | those of the report's section (a finished run) |

Values are means over seeds, with 95% intervals over seeds and facts; `seeds` says over how many. Of a run that is still
going it has what is measured so far, without findings and figures. It prints the tables of README.md.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.evidence import EVERY_KIND
from infoflow.studies import Run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import collecting  # noqa: E402
from collecting import asked, claims, copy_figures, short, write  # noqa: E402

EXPOSURES = ("trained x1", "trained x16", "held out")
FILES = {
    "knowledge": ("knowledge", ["document", "index", "reading", "of", "metric"]),
    "found": ("retrieval_scores", ["system", "queries", "metric", "k"]),
    "conflict": ("knowledge_conflict", ["of", "metric"]),
    "depth": ("knowledge_lens", ["of", "document", "lens", "place", "metric"]),
    "knock_outs": ("evidence_flow", ["facts", "document", "what", "layer"]),
    "heads": ("evidence_ablation", ["facts", "document", "removed"]),
    "ranking": ("attention_ranking", ["metric"]),
}
POOLED = ("evidence_flow", "evidence_ablation", "attention_ranking")
"""Tables of which single exposures are left out."""
SHARES = ("p1", "p1_old", "p1_new", "old", "document", "memorisation_ratio", "hit", "recall", "mrr", "em", "f1")
FIGURES = (
    "knowledge-arms", "stored-bits", "evidence-depth", "evidence-upward", "evidence-heads", "evidence-ablation",
    "conflict", "index-swap", "retrieval-scores", "null-passage", "retrieval-learned", "retrieval-course",
)  # fmt: skip
"""All of the section but the learning curves, which are half a megabyte, and the examples."""


def main() -> None:
    run, to = asked(__doc__, HERE)
    tables = measured(run)
    if not tables:
        raise SystemExit(f"{run.path} has no table yet: arms are measured when all plain ones are trained.")
    for name, (table, by) in FILES.items():
        if table in tables:
            least = -1.0 if table == "evidence_flow" else 0.0  # what is lost is a difference of shares
            write(over_seeds(kept(table, tables[table]), by, least), to / f"{name}.csv")
    if "retrieval_runs" in tables:
        write(training(tables), to / "training.csv")
    if "findings" in run.tables:
        write(claims(run, "retrieval"), to / "findings.csv")
        copy_figures(run, FIGURES, to / "figures")
    if "knowledge" in tables:
        print(answers(over_seeds(kept("knowledge", tables["knowledge"]), FILES["knowledge"][1])))


def measured(run: Run) -> dict[str, pd.DataFrame]:
    """The run's tables; of a run that is still going those of the stages that are done."""
    names = {"retrieval_runs", *(table for table, _ in FILES.values())}
    if "findings" in run.tables:
        return {name: pd.DataFrame(run.tables[name]) for name in names if name in run.tables}
    parts: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for stage in run.stages:
        if stage.is_done():
            for name, frame in stage.tables().items():
                parts[name].append(pd.DataFrame(frame))
    return {name: pd.concat(parts[name], ignore_index=True) for name in names if name in parts}


def kept(table: str, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that are committed, with the name of the arm and the kind of facts in one column."""
    keep = np.ones(len(rows), dtype=bool)
    if table == "knowledge":  # layers: one block's FFN gives its mean
        plain = (rows["variant"] == "") & (rows["index"] == "as-trained") & (rows["reading"] == "raw")
        keep = (rows["layer"] == -1) & (rows["metric"] != "nats") & (rows["trained"] | plain)
    elif table == "retrieval_scores":
        keep = ~rows["metric"].isin(["training_p1", "learned"]) & ~rows["system"].isin(["random", "oracle"])
    elif table == "knowledge_conflict":
        keep = rows["layer"] == -1
    elif table == "knowledge_lens":
        keep = rows["metric"].isin(["half", "centre"])
    elif table == "evidence_flow":
        keep = (rows["method"] == "knock-out") & (rows["scope"] == "upward") & (rows["metric"] == "p1")
    elif table == "evidence_ablation":
        keep = rows["metric"] == "p1"
    if table in POOLED and "weight" in rows:
        keep &= rows["weight"] == -1  # all exposures
    if table == "attention_ranking" and "facts" in rows:
        keep &= rows["facts"] == EVERY_KIND
    rows = pd.DataFrame(rows[keep])
    if "weight" in rows:
        exposure = np.where(rows["weight"] > 0, " x" + rows["weight"].astype(str), "")
        rows = rows.assign(of=rows["facts"].astype(str) + exposure)
    return rows.assign(arm=arms(rows))


def arms(rows: pd.DataFrame) -> pd.Series:
    """`read-gold`, `read-gold+pairs`, `read-gold, untrained`."""
    variant = rows["variant"].astype(str)
    named = rows["objective"].astype(str) + np.where(variant == "", "", "+" + variant)
    return named + np.where(rows["trained"], "", ", untrained")


def over_seeds(rows: pd.DataFrame, by: list[str], least: float = 0.0) -> pd.DataFrame:
    """Mean over seeds and its interval for each arm and values of `by`; shares are at least `least`."""
    return collecting.over_seeds(rows, ["arm", *by], SHARES, (least, 1.0))


def training(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Of each reader and seed: what it answers of its training queries, a guess, whether it learned, what it cost."""
    runs = tables["retrieval_runs"]
    columns = ["arm", "seed", "training_p1", "chance", "learned", "learning_rate", "updates", "seconds", "cpu_seconds"]
    return runs[runs["trained"].astype(bool)].assign(arm=arms)[columns].sort_values(["arm", "seed"])


def answers(known: pd.DataFrame) -> str:
    """The first table of README.md: right answers of trained readers by document and kind of fact."""
    known = known.query("metric == 'p1' and index == 'as-trained' and reading == 'raw'")
    value = known.set_index(["arm", "document", "of"])["value"]
    columns = {"none": EXPOSURES, "gold": EXPOSURES, "own": EXPOSURES, "random": ("trained x16",)}
    lines = [
        "| arm | nothing: 1, 16, held out | right passage | what it finds itself | random passage: 16 |",
        "|---" * 5 + "|",
    ]
    for arm in dict.fromkeys(known["arm"]):
        if "untrained" not in arm:
            cells = [
                " ".join(short(value.get((arm, document, of), np.nan)) for of in kinds)
                for document, kinds in columns.items()
            ]
            lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
