"""Models of another architecture, update, start or variant never change a claim's row: they have rows of their own."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from dynamics.synthetic import Recordings
from pruning.synthetic import Sweeps, task_scores
from support.transplanted import Transplants

from infoflow.findings import FINDINGS, Finding, evaluate, model_groups
from infoflow.results import END, UNTRAINED, with_keys

from .adapted_tables import Adapted
from .conftest import Study
from .groups import with_models
from .probed_tables import Probed
from .retrieved_tables import Retrieved
from .test_context_claims import Closed
from .test_dynamics_claims import corpora
from .test_head_claims import TRUE, scores, table
from .test_objective_claims import tables as objectives

pytestmark = pytest.mark.slow

OTHERS = {
    "checkpoint": {"update": 500},
    "architecture": {"architecture": "albert"},
    "start": {"start": "causal-lm/seed-0"},
    "variant": {"variant": "another"},
}
PLACES_OF_OTHERS = (("bert", 500), ("albert", END))
BASES = (
    "curves",
    "heads",
    "pruned",
    "recorded",
    "corpora",
    "objectives",
    "context",
    "transplants",
    "probed",
    "adapted",
    "retrieved",
    "others",
)
RETRIEVED = (
    "knowledge",
    "knowledge_conflict",
    "knowledge_lens",
    "evidence_flow",
    "evidence_heads",
    "evidence_ablation",
    "attention_ranking",
    "retrieval_scores",
    "allocation_steps",
    "probe_trees",
    "probe_scores",
    "task_scores",
)
ADAPTED = ("tuned_scores", "tuning_change", "tuning_heads", "layer_swaps", "domain_loss", "task_scores")
OTHERS_OF = ("weights:", "sinks:", "neurons:", "heads:D", "probing:S-", "routes:", "patching:")
OTHER_CLAIMS = [name for name in FINDINGS if name.startswith(OTHERS_OF)]
COMPARED = {  # settings that a claim compares, or that its table has only one of
    "head_composition": {"via": ["key", "value"]},
    "massive_ablation": {"mode": ["zero", "mean"]},
    "detached_translation": {"layer": 6},
    "patching_agreement": {"layer": 6},
    "patching_effect": {"clean": 2.0, "corrupted": 1.0},
    "patching_faithfulness": {
        "ranking": ["exact", "gradient", "integrated", "random 1", "random 2"],
        "parts": 3,
        "total": 9,
    },
}
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
TWO_AT_ONCE = "objectives:O2"  # reads two architectures, so that no row is of one
PLACES = ("removed", "share")  # a column of floats that says what a row is about


def read_by(names) -> dict[str, pd.DataFrame]:
    """Random numbers for all tables that these claims read: each of their settings, in several layers and heads."""
    rows: dict[str, list[dict]] = {}
    for read in dict.fromkeys(one for name in names for of in FINDINGS[name].reads.values() for one in of.tables):
        settings = {
            key: value[0] if isinstance(value, tuple) else value for key, value in read.settings if value is not ...
        }
        rows.setdefault(read.name, []).append(COMPARED.get(read.name, {}) | settings)
    return {
        name: invented(own, heads=3 if "head" in name or "sink" in name or "route" in name else 1)
        for name, own in rows.items()
    }


def invented(settings: list[dict], heads: int) -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), {}
    for objective, seed, trained, layer, head in product(OBJECTIVES, (1, 2, 3), (True, False), range(7), range(heads)):
        keys = {"objective": objective, "seed": seed, "trained": trained, "stack": "encoder", "layer": layer}
        for own in settings:
            for kind in product(*(value if isinstance(value, list) else [value] for value in own.values())):
                number = {"value": rng.random(), "baseline": rng.random(), "count": 9, "replicates": rng.random(30)}
                named = keys | {"head": head, "neurons": 64.0} | dict(zip(own, kind, strict=True))
                rows[tuple(named.items())] = named | number
    return pd.DataFrame(rows.values())


@cache
def base(name: str) -> dict[str, pd.DataFrame]:
    """Tables of one part of a study, with the columns that tell models apart."""
    if name == "objectives":
        return {name: frame[frame["architecture"] == "bert"] for name, frame in objectives().items()}
    sweeps = Sweeps(draws=1, recovers=True)
    tables = {
        "curves": lambda: (
            Study(noise=0.02, between=0.02).tables() | {"head_rare_token": table(TRUE["head_rare_token"])}
        ),
        "heads": lambda: {name: table(rows) for name, rows in TRUE.items()} | {"task_scores": scores()},
        "pruned": lambda: sweeps.tables() | {"task_scores": task_scores(sweeps)},
        "recorded": lambda: Recordings(layer_sign={}).tables(),
        "context": lambda: {"encoder_context": Closed().table(), "task_scores": task_scores(sweeps)},
        "transplants": lambda: Transplants().tables(),
        "probed": lambda: Probed().tables(),
        "adapted": lambda: Adapted().tables(ADAPTED),
        "retrieved": lambda: Retrieved().tables(RETRIEVED),
        "corpora": lambda: corpora(Recordings(), Recordings(corpus=1)),
        "others": lambda: read_by(OTHER_CLAIMS) | {"task_scores": task_scores(Sweeps(objectives=OBJECTIVES))},
    }[name]()
    return {name: keyed(frame) for name, frame in tables.items()}


def keyed(frame: pd.DataFrame) -> pd.DataFrame:
    if "objective" not in frame and "objective_a" not in frame:
        frame = frame.assign(objective="masked-lm", trained=True)
    frame = with_keys(frame)
    for side in ("", "_a", "_b"):
        if f"objective{side}" in frame:
            names = frame[f"objective{side}"] + "/seed-" + frame[f"seed{side}"].astype(str)
            frame = frame.assign(**{f"architecture{side}": "bert", f"model{side}": names})
    return frame


def claims(tables: dict[str, pd.DataFrame], of: str = "") -> list[Finding]:
    """Those that these tables suffice for, and that read one of them."""
    told = [one for one in FINDINGS.values() if one.tables and set(one.tables) <= set(tables)]
    told = [one for one in told if with_models(one, tables)]
    return [one for one in told if not of or of in one.tables]


def changed(frame: pd.DataFrame, keys: dict[str, object], *, sides: tuple[str, ...] = ("", "_a", "_b"), wild=True):
    """The trained models of a table again as others, with numbers that would show in any mean or choice."""
    rows = frame[frame["trained"]] if "trained" in frame and "architecture" not in keys else frame
    new = {f"{key}{side}": value for key, value in keys.items() for side in sides if f"objective{side}" in frame}
    if "architecture" in keys or "update" not in keys:
        own = [column for column in new if not column.startswith("update")]
        rows = rows.assign(**{column: new[column] for column in own})
    else:
        rows = rows.assign(**new)
    if not wild:
        return rows
    for column in rows.columns:
        if rows[column].dtype == "float64" and column not in PLACES:
            rows[column] = 7.0 - 50 * rows[column]
        elif rows[column].dtype == "bool" and column not in ("trained",):
            rows[column] = ~rows[column]
    if "replicates" in rows:
        rows["replicates"] = [list(7.0 - 50 * np.asarray(row, dtype=float)) for row in rows["replicates"]]
    return rows


def with_others(tables: dict[str, pd.DataFrame], kinds, only: str = "", **how) -> dict[str, pd.DataFrame]:
    return {
        name: pd.concat([frame, *(changed(frame, OTHERS[kind], **how) for kind in kinds)], ignore_index=True)
        if only in ("", name)
        else frame
        for name, frame in tables.items()
    }


def first_rows(found: pd.DataFrame) -> pd.DataFrame:
    own = found[(found["architecture"] == "bert") & (found["update"] == END)]
    return own.set_index("id")


@cache
def expected(name: str) -> pd.DataFrame:
    return first_rows(evaluate(base(name), claims(base(name))))


def test_every_claim_and_every_table_is_tried():
    tried = {one.id for name in BASES for one in claims(base(name))}
    # Those about time read all checkpoints: test_time_claims.py adds other models to their tables.
    at_one_update = [one for one in FINDINGS.values() if one.tables and not one.id.startswith(("time:", "heads:M7"))]
    assert {one.id for one in at_one_update} == tried | {TWO_AT_ONCE}
    assert {table for one in at_one_update for table in one.tables} <= {t for name in BASES for t in base(name)}
    verdicts = pd.concat([expected(name) for name in BASES])["verdict"]
    assert (verdicts != "not testable here").sum() > 50  # there are numbers that could change


@pytest.fixture
def first_group_only(monkeypatch):
    """The other groups of models, which the first must not depend on, are not judged."""
    monkeypatch.setattr("infoflow.findings._evaluate.model_groups", lambda *of: model_groups(*of)[:1])


@pytest.mark.parametrize("name", BASES)
def test_other_models_in_all_tables_change_no_row(name):
    found = evaluate(with_others(base(name), OTHERS), claims(base(name)))
    pd.testing.assert_frame_equal(first_rows(found), expected(name))
    for architecture, update in PLACES_OF_OTHERS:
        own = found[(found["architecture"] == architecture) & (found["update"] == update)]
        own = own[own["id"] != "retrieval:R-14"]  # it is about runs that learn nothing
        assert set(own["verdict"]) == {"not testable here"}  # its losses are none that a model has learned by


@pytest.mark.parametrize("name", BASES)
def test_other_models_in_one_table_change_no_row(name, first_group_only):
    """For claims that read several tables; the others see the same as with other models in all tables."""
    for source in base(name):
        own = [one for one in claims(base(name), source) if len({*one.tables} - {"task_scores"}) > 1]
        if source == "task_scores" or not own:
            continue
        found = first_rows(evaluate(with_others(base(name), OTHERS, only=source), own))
        pd.testing.assert_frame_equal(found, expected(name).loc[[one.id for one in own]])


@pytest.mark.parametrize("name", ["curves", "recorded", "corpora"])
@pytest.mark.parametrize("sides", [("_a",), ("_b",)])
def test_pairs_with_one_other_model_change_no_row(name, sides, first_group_only):
    for source, frame in base(name).items():
        if "objective_a" in frame:
            own = claims(base(name), source)
            found = first_rows(evaluate(with_others(base(name), OTHERS, only=source, sides=sides), own))
            pd.testing.assert_frame_equal(found, expected(name).loc[[one.id for one in own]])


@pytest.mark.parametrize("name", BASES)
def test_another_architecture_or_update_has_rows_of_its_own(name):
    """The same numbers again give the same rows; controls before training are those of the same architecture."""
    kinds = ("checkpoint", "architecture")
    found = evaluate(with_others(base(name), kinds, wild=False), claims(base(name)))
    assert len(found) == 3 * len(expected(name))
    same = expected(name).columns.drop(["architecture", "update"])
    for architecture, update in PLACES_OF_OTHERS:
        own = found[(found["architecture"] == architecture) & (found["update"] == update)].set_index("id")
        pd.testing.assert_frame_equal(own[same], expected(name)[same])


@pytest.mark.parametrize("name", BASES)
def test_two_models_of_one_objective_and_seed_are_refused(name):
    twice = {
        source: pd.concat([frame, *(changed(frame, {f"model{side}": "mine"}, sides=("",), wild=True).assign(
            **{f"model{side}": "mine"}) for side in ("", "_a") if f"objective{side}" in frame)])
        for source, frame in base(name).items()
    }  # fmt: skip
    for source in base(name):
        own = claims(base(name), source)
        if source == "task_scores":  # patching needs no scores, readers with passages others
            own = [one for one in own if one.learned and not one.id.startswith("retrieval:")]
        if name == "others":  # claims of other bases lack their settings here
            own = [one for one in own if one.id in OTHER_CLAIMS]
        if not own:
            continue
        found = evaluate(base(name) | {source: twice[source]}, own).set_index("id")
        told = found["reason"].str.contains("there are several: model") | (
            found["note"].str.contains("there are several: model")
            & (found["effect"] == expected(name).loc[found.index, "effect"])
        )
        assert told.all(), (source, found.loc[~told, "reason"].to_list())


def test_the_first_architecture_and_the_end_come_first():
    tables = with_others(base("heads"), ["architecture", "checkpoint"])
    found = evaluate(tables | {"task_scores": tables["task_scores"].iloc[::-1]}, claims(tables))
    places = list(dict.fromkeys(zip(found["architecture"], found["update"], strict=True)))
    assert places == [("bert", END), ("bert", 500), ("albert", END)] or places[0][0] == "albert"
    assert [place for place in places if place[1] == UNTRAINED] == []


def test_tables_that_name_no_architecture_are_of_the_first(published):
    without = {name: frame.drop(columns="model", errors="ignore") for name, frame in published.items()}
    named = {name: keyed(frame) for name, frame in published.items()}
    mixed = named | {name: without[name] for name in ("geometry", "model_distance", "alignment")}
    rows = [evaluate(tables, claims(published)).drop(columns="architecture") for tables in (published, mixed)]
    pd.testing.assert_frame_equal(*rows)
