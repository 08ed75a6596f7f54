"""The README's tables of pretrained models, from `pretrained/*.csv`: `python experiments/studies/probing/tables.py`."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "pretrained"
NAMES = {
    "upos": "parts of speech",
    "constituents": "constituents",
    "arc-label": "relations of arcs",
    "entity-spans": "mentions by kind",
    "coreference": "coreference",
}
LAYERS = {"minilm": range(7), "smollm2": range(0, 31, 5)}


def scores(probe: str, task: str, labels: str = "task") -> tuple[str, dict[str, str]]:
    """Where accuracies of a probe stand: the table, and the rows' values."""
    return "probe_scores", {"task": task, "probe": probe, "labels": labels, "metric": "accuracy"}


def codes(code: str, labels: str) -> tuple[str, dict[str, str]]:
    """Likewise how much shorter than uniform a code of parts of speech is."""
    return "probe_codelength", {"task": "upos", "code": code, "labels": labels, "metric": "compression"}


CURVES: dict[str, tuple[str, dict[str, str]]] = {
    "parts of speech, linear probe": scores("linear", "upos"),
    "its control task": scores("linear", "upos", "control"),
    "parts of speech, MLP": scores("mlp", "upos"),
    "which word, linear probe": scores("linear", "word"),
    "edges of trees, structural probe": (
        "probe_trees",
        {"structure": "distance", "probe": "structural", "metric": "uuas"},
    ),
    "BERTScore F of pairs": ("bert_score_layers", {}),
    "its correlation with people": ("bert_score", {"labels": "human"}),
    "with permuted scores": ("bert_score", {"labels": "permuted"}),
    **{
        f"{code} code of {told}, compression": codes(code, labels)
        for code in ("online", "variational")
        for labels, told in (("task", "parts of speech"), ("control", "control task"), ("shuffled", "shuffled labels"))
    },
}
CLAIMS = [f"probing:{one}" for one in ("T-1", "T-2", "T-3", "M-1", "M-2", "M-3", "M-5", "M-6")]
CLAIMS += [f"probing:P-{one}" for one in range(1, 6)]


def number(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "–"
    told = f"{value:.{digits}f}"
    return told.replace("0.", ".", 1) if abs(value) < 1 else told


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def chosen(table: str, model: str, trained: bool = True, **values: str) -> pd.DataFrame:
    frame = pd.read_csv(FOLDER / f"{table}.csv")
    for name, value in {"model": model, "trained": trained, **values}.items():
        frame = frame[frame[name] == value]
    return frame


def curves(model: str) -> Iterator[str]:
    """Every score at some layers, its best layer, and between which numbers the untrained model lies."""
    yield row([model, *map(str, LAYERS[model]), "highest (layer)", "untrained", "control"])
    yield row(["---"] * (len(LAYERS[model]) + 4))
    for told, (table, values) in CURVES.items():
        own, other = (chosen(table, model, trained, **values).set_index("layer") for trained in (True, False))
        own, other = own[own.index >= 0], other[other.index >= 0]
        at, peak = own["value"], int(own["value"].idxmax())
        between = f"{number(other['value'].min())} to {number(other['value'].max())}"
        beside = f"{number(own['baseline'].min())} to {number(own['baseline'].max())}"
        yield row(
            [told, *(number(at[layer]) for layer in LAYERS[model]), f"{number(at[peak])} ({peak})", between, beside]
        )


def depths(model: str) -> Iterator[str]:
    """Edge probes: cumulative scores at the bottom, the best and the top, and where tasks lie."""
    columns = ["cumulative score: layer 0", "best (layer)", "top", "untrained, 0 and top", "majority"]
    columns += [
        "expected layer",
        "running maximum",
        "centre of gravity",
        "K(s)",
        "K(s), untrained",
        "loss in all change",
    ]
    yield row([f"{model}: edge probe of", *columns])
    yield row(["---"] * (len(columns) + 1))
    for task, told in NAMES.items():
        scores = chosen("probe_mixing", model, task=task, statistic="score").set_index("layer")
        random = chosen("probe_mixing", model, trained=False, task=task, statistic="score").set_index("layer")["value"]
        own = chosen("probe_depth", model, task=task).set_index("statistic")
        other = chosen("probe_depth", model, trained=False, task=task).set_index("statistic")
        value, at = own["value"], scores["value"]
        expected = own.loc["expected_layer"]
        cells = [
            number(at.iloc[0]),
            f"{number(at.max())} ({int(at.idxmax())})",
            number(at.iloc[-1]),
            f"{number(random.iloc[0])}, {number(random.iloc[-1])}",
            number(scores["baseline"].iloc[0]),
            f"{number(expected['value'], 1)} ({number(expected['low'], 1)} to {number(expected['high'], 1)})",
            number(value["expected_layer_running_maximum"], 1),
            number(value["center_of_gravity"], 1),
            number(value["k_weights"]),
            number(other["value"]["k_weights"]),
            number(value["negative_mass"], 2),
        ]
        yield row([told, *cells])


def verdicts() -> Iterator[str]:
    found = pd.read_csv(FOLDER / "findings.csv").set_index(["id", "model"])
    yield row(["claim", *LAYERS, "needed"])
    yield row(["---"] * 4)
    for claim in CLAIMS:
        cells, needed = [], ""
        for model in LAYERS:
            if (claim, model) not in found.index:
                cells.append("not judged")
                continue
            one = found.loc[(claim, model)]
            interval = f"{number(one['low'])} to {number(one['high'])}" if one["low"] != one["high"] else "no interval"
            cells.append(f"{one['verdict']}: {number(one['effect'])} ({interval}); control {number(one['control'])}")
            needed = str(one["reason"]).partition("needed ")[2].partition(".  ")[0].split(". ")[0]
        yield row([claim.removeprefix("probing:"), *cells, needed])


def main() -> None:
    for model in LAYERS:
        print(*curves(model), "", *depths(model), "", sep="\n")
    print(*verdicts(), sep="\n")


if __name__ == "__main__":
    main()
