"""The map of objectives in the report: what it draws, where names stand, what it says; INVENTED numbers."""

import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures, objective_label, svg_of, tell
from findings.test_objective_map import PLACES, heads_tables, model_distance
from synthetic_run import _write_plain, make_study

from infoflow.report import write_report
from infoflow.results import KEYS, RunFolder
from infoflow.subjects.alignment.claims import MAP_TABLES, objective_map

pytestmark = pytest.mark.slow


def make_run(path, seeds=(0, 1), moved=None) -> RunFolder:
    """A study of the objectives that were placed; `moved`: other ones instead, at these points of one map of a seed."""
    run, found = RunFolder(path), objective_map({"model_distance": model_distance(seeds), **heads_tables((0,))})
    names, schemas = moved or PLACES, {schema.name: schema for schema in MAP_TABLES}
    if moved:
        found["objective_map"] = pd.DataFrame(
            {**found["objective_map"].iloc[0], "objective": name, "nearest": name, "x": x, "y": y}
            for name, (x, y) in moved.items()
        )
        found["objective_distances"] = pd.DataFrame(
            {**found["objective_distances"].iloc[0], "first": one, "second": other, "value": np.hypot(a - c, b - d)}
            for (one, (a, b)), (other, (c, d)) in combinations(moved.items(), 2)
        )
        del found["objective_families"]
    for name, frame in found.items():
        run.tables.write(frame, schemas[name])
    entries = [
        {"name": f"{name}/seed-{seed}", "objective": name, "variant": "", "architecture": "bert", "start": "",
         "seed": seed, "update": -1, "parameters": 1000}
        for name in names for seed in seeds
    ]  # fmt: skip
    run.update(kind="study", title="Invented", models=entries, plan={}, warnings=[], command="")
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("alike"))


@pytest.fixture(scope="module")
def figures(run):
    return drawn_figures(run, "objectives")


def test_the_map_leads_the_report(run) -> None:
    story = tell(run)
    assert story.sections[0].id == "objectives"
    assert [figure.id for figure in story.sections[0].figures] == ["objective-map"]


def test_each_aspect_has_a_picture_beside_the_untrained_control(figures) -> None:
    titles = [panel.title for panel in figures["objective-map"].panels]
    assert titles == ["spaces", "spaces before training, same scale", "heads"]


def test_every_objective_is_named_in_every_picture(figures) -> None:
    labels = {objective_label(name) for name in PLACES}
    for index in (0, 2):
        spec = figures["objective-map"].panels[index].spec
        texts = set(re.findall(r">([^<>]+)</text>", svg_of({**spec, "width": 330})))
        assert labels <= texts


def test_sentences_say_what_the_tables_hold(run, figures) -> None:
    first, *_ = figures["objective-map"].answer
    assert "nearest are causal LM and single-stack prefix LM" in first
    control = run.tables["objective_distances"]
    control = control[(control["aspect"] == "spaces") & ~control["trained"] & (control["first"] != control["second"])]
    assert first.endswith(f"Before training no two are farther apart than {control['value'].max():.2f}.")
    strays = figures["objective-map"].answer[1]
    assert strays.startswith("By their spaces, these are nearest to an objective of another family: ")
    assert "denoising (to translation)" in strays
    shares = figures["objective-map"].answer[3]
    assert re.search(r"a share of 0\.8 \(0\.\d to \d\.\d\) of 6 objectives", shares)
    assert "before training" in shares
    assert "means over 2 seeds" in figures["objective-map"].caption


def match_rows() -> list[dict]:
    rows = []
    for objective, flops, told in (
        ("masked-lm", 1e12, "matched: 9 of 9 random weights are the masked LM's, bit for bit"),
        ("translation", 3e12, "matched on the side that reads the text: 9 of 20 random weights ...; the others ..."),
        ("causal-lm", 1.5e12, "its own: norms stand before each part"),
    ):
        for seed in (1, 2):
            keys = {c.name: "" for c in KEYS} | {"seed": seed, "update": -1, "trained": True, "architecture": "bert"}
            keys |= {"model": f"{objective}/seed-{seed}", "objective": objective}
            sizes = {"parameters": 4000, "measured_parameters": 4000, "flops": flops * (1 + 0.1 * (seed - 1))}
            tokens = {"updates": 10, "source_tokens": 5000, "target_tokens": 0, "supervised_tokens": 700}
            rows.append({**keys, **sizes, "flops_error": 1e10, **tokens, "drawn_weights": 9, "matched_weights": 9,
                         "initialisation": told})  # fmt: skip
    return rows


def test_what_was_matched_is_a_table_beside_its_operations(tmp_path) -> None:
    run = make_study(tmp_path)
    _write_plain(run, "match", match_rows())
    figure = drawn_figures(run, "training")["match"]
    rows = {row["label"]: row for row in figure.payload["rows"]}
    assert rows["masked LM"]["cells"][2] == "1.05 × 10¹²"
    assert rows["masked LM"]["text"] == "matched"
    assert rows["translation"]["text"] == "matched on the reading side"
    assert figure.payload["notes"] == ["causal LM: norms stand before each part."]
    assert figure.answer[0].startswith(
        "Operations differ by a factor of up to 3.00: fewest for masked LM (1.05 × 10¹²)"
    )
    assert "All had 10 updates and 5,000 source tokens" in figure.answer[1]
    page = write_report(run).read_text(encoding="utf-8")
    assert 'id="match"' in page
    assert "supervised tokens" in page


def test_all_architectures_of_a_study_are_in_the_table_of_what_was_matched(tmp_path) -> None:
    run = make_study(tmp_path)
    others = [
        row | {"architecture": "gpt2", "model": row["model"].replace("/", "-on-gpt2/")}
        for row in match_rows()
        if row["objective"] == "causal-lm"
    ]
    _write_plain(run, "match", [*match_rows(), *others])
    labels = [row["label"] for row in drawn_figures(run, "training")["match"].payload["rows"]]
    assert labels == ["causal LM, bert", "masked LM, bert", "translation, bert", "causal LM, gpt2"]
