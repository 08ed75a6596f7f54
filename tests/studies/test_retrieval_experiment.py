"""What `experiments/studies/retrieval` commits: its plans belong together, and its tables are means over seeds."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.scripts import script

from infoflow.foundation import interval_over_seeds
from infoflow.studies import StudyPlan

FOLDER = Path(__file__).parents[2] / "experiments" / "studies" / "retrieval"


@pytest.fixture(scope="module")
def collect():
    return script(FOLDER / "collect.py")


def rows(values: dict[int, float], **same) -> pd.DataFrame:
    """One row a seed, with replicates around its value."""
    noise = np.random.default_rng(0).normal(0, 0.02, 200)
    plain = {"objective": "read-gold", "variant": "", "trained": True, "layer": -1, "baseline": 0.05, "count": 300}
    plain |= {"facts": "trained", "weight": 16, "document": "none", "index": "as-trained", "reading": "raw"}
    plain |= {"metric": "p1", **same}
    each = [{"seed": seed, "value": value, "low": value - 0.04, "high": value + 0.04} for seed, value in values.items()]
    return pd.DataFrame([{**plain, **one, "replicates": (one["value"] + noise).tolist()} for one in each])


def test_writers_read_the_world_of_the_others():
    plan, written = StudyPlan.load(FOLDER / "plan.toml"), StudyPlan.load(FOLDER / "written.toml")
    assert written.retrieval.variants == ("rag-sequence", "rag-token")
    names = ("arms", "variants", "measures")
    same = dataclasses.replace(written.retrieval, **{name: getattr(plan.retrieval, name) for name in names})
    assert same == plan.retrieval
    assert dataclasses.replace(written, title=plan.title, retrieval=plan.retrieval) == plan


def test_further_readers_read_the_world_of_the_others():
    plan, further = StudyPlan.load(FOLDER / "plan.toml"), StudyPlan.load(FOLDER / "further.toml")
    assert further.retrieval.variants == ("random-token", "random-span", "same-wording")
    names = ("arms", "variants", "measures", "checkpoints", "allocation_tokens")
    same = dataclasses.replace(further.retrieval, **{name: getattr(plan.retrieval, name) for name in names})
    assert same == plan.retrieval
    assert dataclasses.replace(further, title=plan.title, retrieval=plan.retrieval) == plan


def test_readers_that_come_able_to_read_read_the_world_of_the_others():
    plan, reading = StudyPlan.load(FOLDER / "plan.toml"), StudyPlan.load(FOLDER / "reading.toml")
    assert (reading.retrieval.read_updates, reading.retrieval.variants) == (2500, ("null-share",))
    assert not set(reading.retrieval.seeds) & set(plan.retrieval.seeds)
    names = ("read_updates", "variants", "seeds")
    same = dataclasses.replace(reading.retrieval, **{name: getattr(plan.retrieval, name) for name in names})
    assert same == plan.retrieval
    assert dataclasses.replace(reading, title=plan.title, retrieval=plan.retrieval) == plan


def test_a_mean_over_seeds_has_the_interval_of_the_verdicts(collect):
    known = rows({0: 0.2, 1: 0.3, 2: 0.4})
    found = collect.over_seeds(collect.kept("knowledge", known), collect.FILES["knowledge"][1])
    assert found[["arm", "of", "seeds", "count"]].values.tolist() == [["read-gold", "trained x16", 3, 300]]
    draws = np.stack([np.array(one) for one in known["replicates"]])
    ends = interval_over_seeds([(0,), (1,), (2,)], known["value"].to_numpy(), draws)
    assert found[["value", "low", "high"]].values.tolist() == [[pytest.approx(0.3), max(ends.low, 0.0), ends.high]]


def test_one_seed_keeps_the_interval_of_its_table(collect):
    frames = [rows({0: 0.2}), rows({0: 0.9}, variant="pairs"), rows({0: 0.1}, trained=False), rows({0: 0.5}, layer=2)]
    known = pd.concat(frames)  # the last is of a model without one block's FFN
    found = collect.over_seeds(collect.kept("knowledge", known), collect.FILES["knowledge"][1]).set_index("arm")
    assert found["value"].to_dict() == {"read-gold": 0.2, "read-gold+pairs": 0.9, "read-gold, untrained": 0.1}
    assert found.loc["read-gold", ["low", "high"]].tolist() == pytest.approx([0.16, 0.24])


def test_the_table_of_the_readme_has_a_dash_where_nothing_was_measured(collect):
    known = collect.over_seeds(collect.kept("knowledge", rows({0: 0.2})), collect.FILES["knowledge"][1])
    assert collect.answers(known).splitlines()[-1] == "| read-gold | – .20 – | – – – | – – – | – |"
