"""The section on lenses: sentences from the data, controls, what is drawn."""

import json
import re

import pytest
from drawn import drawn_section
from synthetic_run import _estimate, _model, _write

from infoflow.report import write_report

pytestmark = pytest.mark.slow

KL = {"logit": (4.0, 3.0, 2.0, 1.2, 0.6, 0.2, 0.0), "tuned": (2.0, 1.4, 1.1, 0.8, 0.4, 0.1, 0.0)}
AGREEMENT = {"logit": (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0), "tuned": (0.3, 0.4, 0.5, 0.62, 0.75, 0.9, 1.0)}
STACKS = {"causal-lm": "decoder", "masked-lm": "encoder", "translation": "decoder"}
BASELINE = {"causal-lm": 2.5, "masked-lm": 3.0, "translation": 4.0}


def rows(lenses=("logit", "tuned"), trained=(True, False), objectives=tuple(STACKS)):
    return [
        {
            **_model(objective, seed, is_trained),
            "stack": STACKS[objective],
            "layer": layer,
            "lens": lens,
            "metric": metric,
            **_estimate(
                value * (1 if is_trained or metric == "agreement" else 1e-3),
                (metric, lens, objective, seed, int(is_trained), layer),
                0.01 * (layer < 6),
                0.005 * (layer < 6),
                (BASELINE[objective] if is_trained else 2e-3) if metric == "kl" else 0.12,
                3000,
            ),
            "positions": "predicted",
        }
        for objective in objectives
        for seed in (1, 2, 3)
        for is_trained in trained
        for lens in lenses
        for metric, curves in (("kl", KL), ("agreement", AGREEMENT))
        for layer, value in enumerate(curves[lens])
    ]


def section(run, **chosen):
    _write(run, "lens", "nats", rows(**chosen))
    return drawn_section(run, "predicts")


@pytest.fixture
def run(tmp_path):
    from synthetic_run import make_study

    return make_study(tmp_path, tables=("training_runs",))


def test_halfway_layers_are_told_from_intervals(run):
    """Half of 2.5 is 1.25, of 3 it is 1.5, of 4 it is 2, which is not below itself."""
    found = section(run)
    logit, untrained = found.figures[0].answer
    assert found.figures[0].words.endswith(
        "from layer 2 on in causal LM; from layer 1 on in masked LM and translation."
    )
    assert logit.startswith("By the logit lens, from layer 3 in causal LM, 3 in masked LM and 3 in translation, ")
    assert "within 0.00 nats" in untrained


def test_each_model_has_a_panel_with_both_lenses_in_its_colour(run):
    divergence, agreement = section(run).figures
    assert [panel.title for panel in divergence.panels] == [
        "causal LM", "masked LM: hidden tokens", "translation: decoder",
    ]  # fmt: skip
    for figure in (divergence, agreement):
        for slot, panel in enumerate(figure.panels):
            text = json.dumps(panel.spec)
            assert '"color": "var(--control)"' in text
            assert f'["var(--series-{slot})", "var(--series-{slot})"]' in text
            assert "logit lens" in text
            assert "tuned lens" in text
    assert sorted(set(divergence.data["layer"])) == [0, 1, 2, 3, 4, 5]
    assert set(divergence.data["group"]) == {"trained", "baseline"}
    assert set(agreement.data["group"]) == {"trained", "untrained", "baseline"}
    assert re.search(r"top token is 0\.6\d* \(0\.5\d+ to 0\.6\d+\) in ", agreement.words)
    assert "3,000 occurrences" in divergence.caption


def test_a_decoder_of_one_layer_has_no_middle_layer(run):
    one = [row for row in rows() if row["objective"] != "translation" or row["layer"] in (0, 6)]
    lowered = [row | {"layer": min(row["layer"], 1 if row["objective"] == "translation" else 6)} for row in one]
    _write(run, "lens", "nats", lowered)
    agreement = drawn_section(run, "predicts").figures[1]
    assert len(agreement.panels) == 3
    assert "in masked LM" in agreement.words
    assert "translation" not in agreement.words


def test_what_a_model_has_no_lens_for_is_not_told(run):
    """As where the table of one run is joined with that of another, which trained no lens."""
    both, tuned = rows(objectives=("causal-lm", "masked-lm")), rows(lenses=("tuned",), objectives=("translation",))
    _write(
        run, "lens", "nats", [row for row in both if row["objective"] == "causal-lm" or row["lens"] == "logit"] + tuned
    )
    logit, _ = drawn_section(run, "predicts").figures[0].answer
    first = drawn_section(run, "predicts").figures[0].words
    assert first.endswith("from layer 2 on in causal LM; from layer 1 on in translation.")
    assert logit.startswith("By the logit lens, from layer 3 in causal LM and 3 in masked LM, ")
    _write(run, "lens", "nats", tuned)
    assert "from layer 1 on in translation" in drawn_section(run, "predicts").figures[0].words


def test_the_page_holds_the_section(run):
    _write(run, "lens", "nats", rows())
    html = write_report(run).read_text(encoding="utf-8")
    assert "When does the prediction form?" in html
    assert 'id="method-lens"' in html
