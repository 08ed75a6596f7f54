import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from drawn import drawn_figures, drawn_section
from synthetic_run import _write_plain

from infoflow.results import RunFolder


def _curves(run: RunFolder) -> pd.DataFrame:
    models = run.tables["task_scores"]
    models = models[models["trained"]][["model", "objective", "seed"]].drop_duplicates()
    rows = [
        {**model, "step": 10 * i, "source_tokens": 1000 * i, "value": 8.0 / i + model["seed"] / 100}
        for model in models.to_dict("records")
        for i in range(1, 6)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def figure_of(study, tmp_path):
    """The figure of the study with these curves."""

    def draw(curves: pd.DataFrame):
        run = RunFolder(shutil.copytree(study.path, tmp_path / "run"))
        _write_plain(run, "learning_curves", curves.to_dict("records"))
        return drawn_figures(run, "training")["learning-curves"]

    return draw


def test_lines_are_means_over_seeds_with_student_s_interval_of_the_logarithm(study, figure_of):
    curves = _curves(study)
    figure = figure_of(curves)
    last = figure.data[figure.data["source_tokens"] == 5000].set_index("series").loc["causal-lm"]
    own = curves[(curves["objective"] == "causal-lm") & (curves["step"] == 50)]["value"]
    assert last["value"] == own.mean()
    factor = np.exp(4.302653 * own.std() / np.sqrt(3) / own.mean())
    assert (last["low"], last["high"]) == pytest.approx((own.mean() / factor, own.mean() * factor))
    assert "with 95% intervals over seeds (bands). Both axes" in figure.caption
    assert last["seeds"] == own.count()
    baseline = study.tables["task_scores"].query("metric == 'loss' and objective == 'causal-lm' and trained")[
        "baseline"
    ]
    assert last["baseline"] == baseline.mean()


def test_long_curves_are_thinned_to_means_over_the_points_they_stand_for(study, figure_of):
    model = _curves(study).query("objective == 'causal-lm'").iloc[0]
    points = np.arange(1, 501)
    curve = pd.DataFrame({"step": 10 * points, "source_tokens": 1000 * points, "value": 9 - np.log(points)})
    curve = curve.assign(model=model["model"], objective="causal-lm", seed=model["seed"])
    drawn = figure_of(curve).data
    assert 50 < len(drawn) <= 80
    ends = [0, *(drawn["update"] // 10).astype(int)]
    assert ends[-1] == 500
    for (start, end), value in zip(pairwise(ends), drawn["value"], strict=True):
        assert value == pytest.approx(curve["value"][start:end].mean())


def test_the_sentence_names_the_fall_and_its_last_half(study, figure_of):
    curves = _curves(study).query("seed == seed.min()").assign(value=lambda f: 8.0 / (f["step"] / 10))
    words = figure_of(curves).words
    assert words.startswith("The fall of the training loss is 6.40 nats per token in causal LM")
    assert words.endswith("the second half of the tokens contributed at most 38% of it, in causal LM.")


def test_names_at_the_ends_do_not_overlap(study, figure_of):
    figure = figure_of(_curves(study))
    labels = next(layer for layer in figure.panels[0].spec["layer"] if layer["encoding"].get("text", {}).get("field"))
    (rows,) = (figure.panels[0].spec["datasets"][labels["data"]["name"]],)
    heights = sorted(row["at"] for row in rows)
    assert all(high / low > 1.05 for low, high in pairwise(heights))


def test_the_training_section_shows_it_where_it_is_known(study, tmp_path):
    run = RunFolder(shutil.copytree(study.path, tmp_path / "run"))
    assert [figure.id for figure in drawn_section(run, "training").figures] == ["task-scores"]
    _write_plain(run, "learning_curves", _curves(run).to_dict("records"))
    assert [figure.id for figure in drawn_section(run, "training").figures] == ["task-scores", "learning-curves"]
