"""The table of roles: thresholds, margins, and what is missing."""

import pandas as pd
import pytest

from infoflow.foundation import UserError
from infoflow.heads import HEAD_ROLES, head_roles, syntactic_heads

KEYS = {"stack": "encoder", "kind": "self", "layer": 0}


def rows(*entries):
    shown = {"low": 0.0, "high": 1.0, "count": 50, "baseline": 0.1}
    return pd.DataFrame([{**KEYS, **shown, **entry} for entry in entries])


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
    "head_patterns": rows({"head": 1, "pattern": "prefix", "score": "all", "value": 0.4}),
}


def held(frame):
    return {(row.role, row.head) for row in frame[frame["holds"]].itertuples()}


def test_a_head_may_hold_several_roles():
    roles = head_roles(TABLES)
    assert held(roles) == {
        ("positional -1", 0),
        ("obj head→dependent", 0),
        ("rarest token", 1),  # head 0 is below its shuffled control
        ("induction", 1),
    }
    assert len(roles) == 2 + 2 + 2 + 1
    syntactic = roles[roles["role"] == "obj head→dependent"]
    assert syntactic["head"].tolist() == [0, 1]  # the best first
    assert syntactic["limit"].tolist() == pytest.approx([0.6, 0.6])


def test_tables_may_be_missing():
    assert head_roles({}).empty
    assert list(head_roles({}).columns) == HEAD_ROLES.column_names
    only = head_roles({"head_positional": TABLES["head_positional"]})
    assert set(only["role"]) == {"positional -1"}


def test_the_margin_can_be_read_in_two_ways():
    relations = TABLES["head_relations"]
    assert syntactic_heads(relations)["head"].tolist() == [0]
    assert syntactic_heads(relations, relative=True)["head"].tolist() == [0, 1]  # 0.5 · 1.1 = 0.55
    assert syntactic_heads(relations, convention="clark")["value"].tolist() == [0.9]
    with pytest.raises(UserError, match="margin must be at least 0"):
        syntactic_heads(relations, margin=-0.1)
