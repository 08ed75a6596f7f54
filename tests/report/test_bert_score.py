"""The figure of BERTScore by layer: numbers of the tables, random pairs, people, names that are escaped."""

import numpy as np
import pandas as pd
import pytest
from drawn import assert_explained, drawn_figures

from infoflow.probing import BERT_SCORE, BERT_SCORE_LAYERS
from infoflow.report import write_report
from infoflow.results import KEYS, RunFolder, estimate

pytestmark = pytest.mark.slow

LAYERS = 4
HUMAN = (0.4, 0.5, 0.6, 0.7, 0.55)
RANDOM = 0.3


def keys(model, trained):
    return {"model": model, "objective": "encoder", "variant": "", "architecture": "bert", "start": "", "seed": 0,
            "update": -1 if trained else 0, "trained": trained}  # fmt: skip


def numbers(value, baseline, *name):
    draw = np.random.default_rng([len(str(one)) for one in name]).standard_normal(200)
    return estimate(value, value + 0.005 * draw, baseline, 300)


def written(path, models=("MiniLM",), people=True, rescaled=False) -> RunFolder:
    means, agreement = [], []
    for model in models:
        for trained in (True, False):
            for layer in range(LAYERS + 1):
                for place, score in enumerate(("precision", "recall", "f")):
                    value = 0.6 + 0.05 * layer + 0.01 * place - 0.2 * (not trained)
                    row = {**keys(model, trained), "layer": layer, "score": score}
                    means.append({**row, "idf": False, "rescaled": rescaled, "random": RANDOM,
                                  **numbers(value, 0.0 if rescaled else RANDOM, score, layer)})  # fmt: skip
                    for labels, of in (("human", HUMAN[layer] if trained else 0.3), ("permuted", 0.01)):
                        agreement.append({**row, "labels": labels, **numbers(of, 0.0, labels, layer)})
    run = RunFolder(path)
    told = [{"name": model, **{k: v for k, v in keys(model, True).items() if k != "model"}} for model in models]
    run.update(kind="bert-score", title="Pairs of texts scored by layer", models=told)
    run.tables.write(pd.DataFrame(means), BERT_SCORE_LAYERS.with_keys(*KEYS))
    if people:
        run.tables.write(pd.DataFrame(agreement), BERT_SCORE.with_keys(*KEYS))
    return run


def test_curves_are_those_of_the_tables(tmp_path):
    figure = drawn_figures(written(tmp_path), "probing")["bert-score"]
    data = figure.data
    agreement = data[(data["shows"] == "correlation") & (data["group"] == "trained")].sort_values("layer")
    assert agreement["value"].tolist() == pytest.approx(list(HUMAN))
    permuted = data[data["group"] == "permuted scores"]
    assert permuted["value"].tolist() == pytest.approx([0.01] * (LAYERS + 1))
    of_f = data[(data["score"] == "f") & (data["shows"] == "mean") & (data["group"] == "trained")].sort_values("layer")
    assert of_f["value"].tolist() == pytest.approx([0.62 + 0.05 * layer for layer in range(LAYERS + 1)])
    random = data[(data["group"] == "baseline") & (data["shows"] == "mean")]
    assert set(random["value"]) == {RANDOM}
    assert [panel.title for panel in figure.panels] == [
        "agreement of F with people (300 pairs)",
        "mean F",
        "mean precision",
        "mean recall",
    ]
    assert_explained([figure])


def test_the_answer_names_the_layer_that_people_agree_with(tmp_path):
    (answer,) = drawn_figures(written(tmp_path), "probing")["bert-score"].answer
    assert answer.startswith("MiniLM agrees best with people in layer 3 of 4: 0.70")
    assert answer.endswith("the top has 0.55.")


def test_names_cannot_break_out_of_the_page(tmp_path):
    page = write_report(written(tmp_path, ("<b>odd",))).read_text()
    assert "bert-score" in page
    assert "<b>odd" not in page.split("</style>")[-1].split("<script")[0]
