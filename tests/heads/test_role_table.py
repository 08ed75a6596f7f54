"""The table of roles: thresholds, margins, and what is missing."""

import numpy as np
import pandas as pd
import pytest

from infoflow.foundation import NUM_REPLICATES
from infoflow.heads import HEAD_ROLES, by_chance, head_roles, role_function, role_strength
from infoflow.results import ratio_estimate

KEYS = {"stack": "encoder", "kind": "self", "layer": 0}


def rows(*entries):
    """Scores of 64,000 observations, of every block alike: intervals are short, and both halves are the whole."""
    shown = {"low": 0.0, "high": 1.0, "count": 64_000, "baseline": 0.1}
    return pd.DataFrame(
        [{**KEYS, **shown, "replicates": [entry["value"]] * NUM_REPLICATES, **entry} for entry in entries]
    )


def relation(hits, count, limit=0.6):
    """The score of one head on one relation from numbers by block, with a limit."""
    keys = {**KEYS, "head": 0, "relation": "obj", "direction": "dependent→head", "convention": "voita"}
    return {**keys, **ratio_estimate(hits, count, limit - 0.1, "share")}


TABLES = {
    "head_positional": rows(
        {"head": 0, "offset": -1, "value": 0.95},
        {"head": 1, "offset": -1, "value": 0.89},
        {"head": 0, "offset": 1, "value": float("nan")},
    ),
    "head_relations": rows(
        *(
            {"head": h, "relation": "obj", "direction": "head→dependent", "convention": c, "value": v, "baseline": 0.5}
            for h, c, v in ((0, "voita", 0.61), (1, "voita", 0.58), (0, "clark", 0.9))
        )
    ),
    "head_rare_token": rows(
        {"head": 0, "rarest": 1, "value": 0.6, "baseline": 0.7},
        {"head": 1, "rarest": 1, "value": 0.6},
        {"head": 1, "rarest": 2, "value": 0.9},
    ),
    "head_patterns": rows({"head": 1, "pattern": "prefix", "score": "all", "value": 0.45}),
}


def held(frame):
    return {(row.role, row.head) for row in frame[frame["holds"]].itertuples()}


def test_a_head_may_hold_several_roles():
    roles = head_roles(TABLES)
    assert held(roles) == {
        ("positional -1", 0),
        ("obj head→dependent", 0),
        ("rarest token", 1),  # head 0 is below its control
        ("induction", 1),
    }
    assert len(roles) == 2 + 2 + 2 + 1
    syntactic = roles[roles["role"] == "obj head→dependent"]
    assert syntactic["head"].tolist() == [0, 1]  # the best first
    assert syntactic["limit"].tolist() == pytest.approx([0.6, 0.6])


def test_the_strength_of_a_role_is_full_where_its_limit_is_reached():
    roles = head_roles(TABLES)
    roles = roles[roles["role"].map(role_function) != ""]
    assert set(roles["role"]) == {"positional -1", "obj head→dependent", "rarest token"}
    for row in roles.itertuples():
        strength = role_strength(row.role, row.value, row.baseline)
        assert (strength == 1) == (row.value >= row.limit)
    assert role_strength("positional -1", 0.5, 0.1) == 0.5
    assert role_strength("obj head→dependent", 0.55, 0.5) == 0.5
    assert role_strength("rarest token", 0.1, 0.2) == role_strength("rarest token", float("nan"), 0.2) == 0


def test_a_role_is_chosen_on_one_half_and_tested_on_the_other():
    """Whatever the whole score: the first half alone does not do, nor the second, nor an interval that reaches over."""
    count, even = np.full(64, 100.0), np.arange(64) % 2 == 0
    first = np.where(even, 90.0, 40.0)
    close = np.where(even, 65.0, 61.0) + np.resize([8, 8, -8, -8], 64)
    both = np.full(64, 70.0)
    table = pd.DataFrame([relation(hits, count) for hits in (first, first[::-1], close, both)])
    roles = head_roles({"head_relations": table.assign(head=range(4))}).sort_values("head")
    assert (roles["value"] >= roles["limit"]).all()
    assert roles["chosen"].tolist() == [True, False, True, True]
    assert roles["holds"].tolist() == [False, False, False, True]
    assert roles["held_out"].tolist() == pytest.approx([0.4, 0.9, 0.61, 0.7], abs=1e-3)


def test_the_number_held_by_chance_is_what_random_heads_hold():
    """Heads whose true score is the limit: half of them are chosen, and of these one in forty holds."""
    generator = np.random.default_rng(0)
    count = generator.integers(80, 120, 64).astype(float)
    table = pd.DataFrame([relation(generator.binomial(count.astype(int), 0.6), count) for _ in range(4000)])
    roles = head_roles({"head_relations": table})
    assert roles["chosen"].mean() == pytest.approx(0.5, abs=0.04)
    assert roles["holds"].sum() == pytest.approx(by_chance(roles), abs=4 * by_chance(roles) ** 0.5)
    lower = head_roles({"head_relations": table.assign(baseline=0.51)})
    assert lower["holds"].sum() <= by_chance(lower)


def test_without_replicates_the_whole_interval_decides():
    table = TABLES["head_positional"].drop(columns="replicates").dropna(subset=["value"])
    assert not head_roles({"head_positional": table})["holds"].any()  # intervals from 0 to 1
    roles = head_roles({"head_positional": table.assign(low=0.93)})
    assert roles["holds"].all()
    assert by_chance(roles) == 0.025 * len(table)


def test_tables_may_be_missing():
    assert head_roles({}).empty
    assert list(head_roles({}).columns) == HEAD_ROLES.column_names
    only = head_roles({"head_positional": TABLES["head_positional"]})
    assert set(only["role"]) == {"positional -1"}
