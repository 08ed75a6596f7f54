"""Which heads are ablated, and which weights stay, when pruned models are trained on."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.scripts import script

RECOVER = script(Path(__file__).parents[2] / "experiments" / "studies" / "pruning-scale" / "recover.py")
COLUMNS = ["model", "method", "scope", "draw", "point", "stack", "kind", "layer", "head", "alive"]


def heads(method: str, draw: int, point: int, alive: list[bool], model: str = "one", scope: str = "encoder-self"):
    return [[model, method, scope, draw, point, "encoder", "self", 0, head, left] for head, left in enumerate(alive)]


@pytest.fixture
def run() -> SimpleNamespace:
    rows = [
        *heads("hard-concrete", 7, 0, [True, True, False]),
        *heads("hard-concrete", 7, 1, [True, False, False]),
        *heads("hard-concrete", 7, 1, [False, True, True], scope="all"),
        *heads("hard-concrete", 8, 1, [False, False, False], model="other"),
        *heads("random", 0, 0, [False, True, True]),
        *heads("random", 0, 1, [False, False, True]),
        *heads("random", 1, 1, [True, False, False]),
    ]
    return SimpleNamespace(tables={"pruned_heads": pd.DataFrame(rows, columns=COLUMNS)})


@pytest.mark.parametrize(("which", "gone"), [("all", []), ("gates", [1, 2]), ("random", [0, 1])])
def test_the_last_point_of_the_sweep_and_the_first_random_draw_say_which_heads_are_gone(run, which, gone):
    assert RECOVER.removed_heads(run, "one", which) == {("encoder", "self", 0, head) for head in gone}


def test_gaps_are_paired_over_sentences_and_averaged_over_seeds(run, tmp_path):
    replicates = np.linspace(-0.5, 0.5, 101)
    for seed, (gates, random) in enumerate([(40.0, 39.0), (42.0, 40.0), (41.0, 41.0)]):
        for heads, value in (("gates", gates), ("random", random)):
            folder = tmp_path / f"seed-{seed}-{heads}-along-1e-05-20"
            folder.mkdir()
            np.savez(folder / RECOVER.SCORES, bleu=np.array([value, *(value + replicates)]))
    before = [
        {"method": "unpruned", "metric": "bleu", "seed": seed, "value": 41.0, "replicates": [41.0] * 101}
        for seed in range(3)
    ]
    run.tables["pruning"] = pd.DataFrame(before)
    found = RECOVER.gaps(tmp_path, run).set_index(["heads", "less"])
    assert found[["decoder", "learning_rate", "updates"]].drop_duplicates().values.tolist() == [["along", 1e-5, 20]]
    assert found["value"].to_dict() == pytest.approx(
        {("gates", "random"): 1.0, ("gates", "converged"): 0.0, ("random", "converged"): -1.0}
    )
    low, high = stats.t.interval(0.95, 2, loc=1.0, scale=stats.sem([1.0, 2.0, 0.0]))  # of the same sentences
    assert found.loc[("gates", "random"), ["low", "high"]].tolist() == pytest.approx([low, high])
