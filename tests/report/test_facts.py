"""The figure of facts that models fill into blanks: numbers of the table, layers, controls, names that are escaped."""

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures

from infoflow.flow import MODEL
from infoflow.probing import FILL_IN
from infoflow.report import write_report
from infoflow.results import RunFolder, estimate

LAYERS = 4
RELATIONS = {"capital_of": (0.1, 0.9), "<b>colour": (0.2, 0.4)}  # at layer 0 and at the top
FACTS = {"capital_of": 50, "<b>colour": 30}


def row(model, layer, relation, average, value, count, *, way=("logit", "manual", "uniform"), blind=0.15):
    lens, prompts, ensemble = way
    rng = np.random.default_rng([layer, len(relation), len(average), len(model)])
    replicates = value + 0.02 * rng.standard_normal(200)
    return {
        "model": model,
        "stack": "decoder",
        "asked": "next",
        "layer": layer,
        "lens": lens,
        "prompts": prompts,
        "ensemble": ensemble,
        "relation": relation,
        "average": average,
        **estimate(value, replicates, 0.25, count, scale="share"),
        "without_subject": blind,
        "templates": 1.0,
        "vocabulary": 1234,
        "left_out": 7,
    }


def at(ends, layer):
    return ends[0] + (ends[1] - ends[0]) * layer / LAYERS


def rows(model, shift=0.0, **more):
    found = []
    for layer in range(LAYERS + 1):
        values = {name: at(ends, layer) + shift for name, ends in RELATIONS.items()}
        found += [row(model, layer, name, "relation", value, FACTS[name], **more) for name, value in values.items()]
        found.append(row(model, layer, "all", "macro", float(np.mean(list(values.values()))), 80, **more))
        found.append(row(model, layer, "all", "micro", 0.99, 80, **more))
    return found


def written(path, models=("one",), further=()) -> RunFolder:
    run = RunFolder(path)
    run.update(kind="fill-in", title="Facts filled in", models=[{"name": name, "parameters": 1000} for name in models])
    frame = pd.DataFrame([*(each for shift, name in enumerate(models) for each in rows(name, -0.05 * shift)), *further])
    run.tables.write(frame, FILL_IN.with_keys(MODEL))
    return run


def test_curves_are_those_of_the_table(tmp_path) -> None:
    figure = drawn_figures(written(tmp_path, ("one", "two")), "probing")["facts-filled-in"]
    data = figure.data[figure.data["group"] == "trained"]
    assert set(data["relation"]) == {"all", *RELATIONS}
    for name, ends in {**RELATIONS, "all": tuple(np.mean(list(RELATIONS.values()), axis=0))}.items():
        for shift, model in enumerate(("one", "two")):
            own = data[(data["relation"] == name) & (data["series"] == model)].sort_values("layer")
            assert own["value"].tolist() == pytest.approx(
                [at(ends, layer) - 0.05 * shift for layer in range(LAYERS + 1)]
            )
            assert (own["low"] < own["value"]).all()
    titles = [panel.title for panel in figure.panels]
    assert titles == ["all 2 relations (80)", "capital of (50)", "<b>colour (30)"]  # escaped where the page is written


def test_the_answer_says_the_best_layer_and_what_guessing_gives(tmp_path) -> None:
    figure = drawn_figures(written(tmp_path), "probing")["facts-filled-in"]
    (answer,) = figure.answer
    assert answer.startswith("One fills in 0.65 (")
    assert "in layer 4 of 4" in answer
    assert answer.endswith("the most frequent objects would be right for 0.25, and prompts without their subject 0.15.")
    assert "1,234 objects to choose from. 7 facts were not tested" in figure.caption


def test_relations_cannot_break_out_of_the_page(tmp_path) -> None:
    page = write_report(written(tmp_path)).read_text()
    assert "facts-filled-in" in page
    assert "<b>colour" not in page.split("</style>")[-1].split("<script")[0]
