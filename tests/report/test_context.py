"""The figure on closed self-attention: lines, single blocks and retrained models, from INVENTED numbers."""

import json

import pytest
from drawn import drawn_figures

from infoflow.results import RunFolder

from .synthetic_run import _write, make_study

BLOCKS = 3


def _row(objective, seed, kind, which, number, retrained, metric, value, trained=True):
    return {
        "model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": trained, "kind": kind,
        "which": which, "number": number, "retrained": retrained, "metric": metric, "value": value,
        "low": value - 0.01, "high": value + 0.01, "baseline": 2.0, "count": 300,
        "replicates": [value + 0.001 * draw for draw in range(-50, 50)],
    }  # fmt: skip


def _rows(seed):
    for objective, kinds in {
        "translation": {"encoder-self": 0.1, "decoder-self": 0.7},
        "masked-lm": {"encoder-self": 1.1},
        "causal-lm": {"decoder-self": 0.5},
    }.items():
        for kind, most in kinds.items():
            for metric, unit in (("share", 1.0), ("loss", 4.0)):
                for k in range(1, BLOCKS + 1):
                    value = unit * most * k / BLOCKS + 0.001 * seed
                    yield _row(objective, seed, kind, "upper", k, 0, metric, value)
                    yield _row(objective, seed, kind, "block", BLOCKS - k, 0, metric, unit * 0.05)
                yield _row(objective, seed, kind, "all", BLOCKS, 0, metric, unit * most)
            yield _row(objective, seed, kind, "all", BLOCKS, 0, "loss", 0.0, trained=False)
            yield _row(objective, seed, kind, "upper", 1, 0, "loss", 0.0, trained=False)
    yield _row("translation", seed, "encoder-self", "all", BLOCKS, 500, "share", 0.04)
    yield _row("translation", seed, "", "none", 0, 500, "share", -0.01)
    yield _row("translation", seed, "encoder-self", "all", BLOCKS, 0, "bleu", -7.0)


@pytest.fixture
def run(tmp_path) -> RunFolder:
    run = make_study(tmp_path / "run", tables=("training_runs",))
    _write(run, "encoder_context", "share", [row for seed in (1, 2, 3) for row in _rows(seed)])
    return run


def figure_of(run):
    (figure,) = drawn_figures(run, "heads").values()
    return figure


def test_lines_blocks_alone_and_retrained_models_by_kind(run):
    figure = figure_of(run)
    assert (figure.id, figure.question) == ("encoder-context", "Which self-attention provides the context?")
    assert [group.id for group in figure.payload["metrics"]] == ["share", "loss", "bleu"]
    share, loss, bleu = (group.panels for group in figure.payload["metrics"])
    assert [panel.title for panel in share] == ["encoder self-attention", "decoder self-attention"]
    assert [panel.title for panel in bleu] == ["encoder self-attention"]
    encoder, decoder = (json.dumps(panel.spec) for panel in share)
    assert "diamond" in encoder
    assert "diamond" not in decoder  # no model was retrained there
    assert "var(--control)" in json.dumps(loss[0].spec)
    data = figure.data.set_index(["series", "metric", "kind", "which", "number", "retrained"])
    assert data.loc[("translation", "share", "encoder-self", "block", 0, 0), "closed"] == BLOCKS
    assert data.loc[("translation", "share", "encoder-self", "upper", 2, 0), "closed"] == 2
    assert data.loc[("translation", "share", "encoder-self", "all", BLOCKS, 500), "closed"] > BLOCKS
    assert not (figure.data["kind"] == "").any()


def test_untrained_lines_that_end_apart_are_named(run):
    """One name where all end together, which the key above the picture gives; else whose each line is."""
    frame = run.tables["encoder_context"]
    loss = next(group for group in figure_of(run).payload["metrics"] if group.id == "loss")
    assert "untrained" in json.dumps(loss.panels[0].spec)
    assert "untrained translation" not in json.dumps(loss.panels[0].spec)  # all untrained models lose nothing
    moved = (frame["objective"] == "translation") & ~frame["trained"] & (frame["kind"] == "encoder-self")
    apart = frame.assign(value=frame["value"].where(~moved, 3.0))
    rows = apart[["objective", *(name for name in apart if name != "objective")]].to_dict("records")
    _write(run, "encoder_context", "share", rows)
    loss = next(group for group in figure_of(run).payload["metrics"] if group.id == "loss")
    texts = json.dumps(loss.panels[0].spec)
    assert "untrained translation" in texts
    assert "untrained masked" in texts


def test_it_says_what_is_lost_and_what_still_is_after_training(run):
    answer = figure_of(run).answer
    assert answer[0].startswith("With encoder self-attention closed in all blocks, the lost share of what is learned")
    assert "in translation, 0.04 (" in answer[0]
    assert "after 500 updates of further training" in answer[0]
    assert "in causal LM" in answer[1]
    assert "further training" not in answer[1]


def test_one_model_that_was_analysed(tmp_path):
    run = RunFolder(tmp_path / "one")
    rows = [{**row, "model": "mine"} for row in _rows(0) if row["objective"] == "causal-lm" and row["trained"]]
    _write(run, "encoder_context", "share", rows)
    run.update(kind="analyze", title="One", models=[{"name": "mine", "objective": "causal-lm", "seed": 0}])
    figure = figure_of(run)
    assert [panel.title for panel in figure.panels] == ["decoder self-attention"]
    assert figure.caption.startswith("One seed")
