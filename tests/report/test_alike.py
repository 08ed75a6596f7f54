"""The map of objectives in the report: what it draws, where names stand, what it says; INVENTED numbers."""

import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures, drawn_section, objective_label, svg_of, tell
from findings.test_objective_map import PLACES, heads_tables, model_distance
from synthetic_run import _write_plain, make_study

from infoflow.objectives import OBJECTIVES
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


def test_distances_are_equal_across_and_upwards_at_any_width(figures) -> None:
    spec = figures["objective-map"].panels[0].spec
    view = {}
    for width in (300, 700):
        svg = svg_of({**spec, "width": width, "autosize": {"type": "pad", "contains": "content"}})
        marks = re.findall(r'aria-roledescription="point"[^>]*transform="translate\(([-\d.]+),([-\d.]+)\)"', svg)
        marks = marks or re.findall(r'<path[^>]*transform="translate\(([-\d.]+),([-\d.]+)\)"', svg)
        points = np.array(marks, dtype=float)[-len(PLACES) :]
        view[width] = points - points.mean(axis=0)
    np.testing.assert_allclose(view[300], view[700], atol=0.5)


def test_names_stand_apart_from_each_other_and_beside_their_points(tmp_path) -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform((20, 20), (280, 320), (16, 2))
    points[1:4] = points[0] + [[2, 1], [-3, 2], [1, -4]]
    points[4] = [150, -60]  # alone
    shortest = sorted(OBJECTIVES, key=lambda name: len(objective_label(name)))
    moved = dict(zip(shortest[:16], points.tolist(), strict=True))
    run = make_run(tmp_path, seeds=(0,), moved=moved)
    (panel,) = drawn_figures(run, "objectives")["objective-map"].panels
    svg = svg_of({**panel.spec, "width": 252, "autosize": {"type": "pad", "contains": "content"}})
    marks = re.findall(r'<path[^>]*transform="translate\(([-\d.]+),([-\d.]+)\)"', svg)[-16:]
    at = np.array(marks, dtype=float)
    per_unit = (at - at[4])[5] / (points - points[4])[5]
    np.testing.assert_allclose(at - at[4], (points - points[4]) * per_unit, atol=1e-3)
    assert per_unit[0] == pytest.approx(-per_unit[1])  # the same scale across and upwards, y downwards
    texts = re.findall(
        r'<text text-anchor="(\w+)" transform="translate\(([-\d.]+),([-\d.]+)\)[^>]*bold[^>]*>([^<]+)<', svg
    )
    assert sorted(text for *_, text in texts) == sorted(map(objective_label, moved))
    boxes = []
    for anchor, x, y, text in texts:
        room, (x, y) = 6.3 * len(text), (float(x), float(y))
        left = x if anchor == "start" else x - room
        boxes.append((left, y - 6.5, left + room, y + 6.5))
    for (l1, t1, r1, b1), (l2, t2, r2, b2) in combinations(boxes, 2):
        assert l1 >= r2 - 1e-9 or l2 >= r1 - 1e-9 or t1 >= b2 - 1e-9 or t2 >= b1 - 1e-9
    assert all(left >= 0 and right <= 256 for left, _, right, _ in boxes)
    led = [row for rows in panel.spec["datasets"].values() for row in rows if "end_x" in row]
    assert 2 <= len(led) < 16
    lone = list(moved)[4]
    assert lone not in {row["series"] for row in led}
    ((anchor, x, y),) = [place for *place, text in texts if text == objective_label(lone)]
    assert anchor == "start"
    assert float(x) - at[4][0] == pytest.approx(9)
    assert float(y) - at[4][1] == pytest.approx(3, abs=1)


def test_sentences_say_what_the_tables_hold(run, figures) -> None:
    first, *_ = figures["objective-map"].answer
    assert "nearest are causal LM and single-stack prefix LM" in first
    control = run.tables["objective_distances"]
    control = control[(control["aspect"] == "spaces") & ~control["trained"] & (control["first"] != control["second"])]
    assert first.endswith(f"Before training no two are farther apart than {control['value'].max():.2f}.")
    strays = figures["objective-map"].answer[1]
    assert strays.startswith("By their spaces, nearest to an objective of another family: ")
    assert "denoising (to translation)" in strays
    shares = figures["objective-map"].answer[3]
    assert re.search(r"a share of 0\.8 \(0\.\d to \d\.\d\) of 6 objectives", shares)
    assert "before training" in shares
    assert "means over 2 seeds" in figures["objective-map"].caption


def test_one_seed_has_no_error_bar_and_says_so(tmp_path) -> None:
    figures = drawn_figures(make_run(tmp_path, seeds=(0,)), "objectives")
    assert "no error bar" in figures["objective-map"].caption


def test_few_objectives_have_no_map(study) -> None:
    assert drawn_section(study, "objectives") is None


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
    assert rows["masked LM"]["told"] == "matched"
    assert rows["translation"]["told"] == "of the reading side"
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
