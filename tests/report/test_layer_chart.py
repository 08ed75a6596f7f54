import json

import altair as alt
import pandas as pd
import pytest
import small_run
from drawn import drawn_figures

from infoflow.report import Figures


def _rows(values, control=(), baseline=(), row=small_run.information, **keys):
    """Of a model, its untrained control and the measure's baseline, by layer."""
    baselines = [*baseline, *[float("nan")] * (len(values) - len(baseline))]
    own = [small_run.estimate(value, 0.1, at) for value, at in zip(values, baselines, strict=True)]
    rows = [row("masked-lm", layer, **keys, **one) for layer, one in enumerate(own)]
    rows += [
        row("masked-lm", layer, **keys, trained=False, **small_run.estimate(value, 0.1))
        for layer, value in enumerate(control)
    ]
    return rows


@pytest.fixture
def run_of(tmp_path_factory):
    """A run that measured one thing by layer."""

    def write(rows, table="mutual_information", kind="study"):
        return small_run.write_run(tmp_path_factory.mktemp("run"), kind=kind, **{table: rows})

    return write


@pytest.fixture
def chart(run_of):
    def draw(*values, **more):
        return drawn_figures(run_of(_rows(*values, **more)), "knows")["mi-input"].panels[0].spec

    return draw


def _domain(spec):
    return next(
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in spec["layer"]
        if "scale" in layer["encoding"].get("y", {})
    )


def test_a_distant_baseline_is_named_at_the_edge_instead_of_squashing_the_curves(chart):
    spec = chart([5.0, 4.0], control=[4.5, 4.5], baseline=[0.3, 0.3])
    assert _domain(spec)[0] > 3
    assert "↓ shuffled labels: 0.3 (off scale)" in json.dumps(spec, ensure_ascii=False)


def test_the_only_control_may_take_more_room(chart):
    spec = chart([5.0, 4.0], baseline=[0.3, 0.3])
    assert _domain(spec)[0] <= 0.3
    assert "off scale" not in json.dumps(spec)


def test_even_the_only_control_does_not_squash_the_curves(chart):
    spec = chart([5.0, 5.01], baseline=[0.3, 0.3])
    assert _domain(spec)[0] > 4
    assert "shuffled labels: 0.3 (off scale)" in json.dumps(spec)
    rules = [layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert [rule["color"] for rule in rules if "strokeDash" in rule] == ["var(--control)"]


def test_bands_lie_within_the_axis(chart):
    low, high = _domain(chart([5.0, 4.0], control=[4.5, 4.5]))
    assert low < 3.9
    assert high > 5.1


def _drawn(spec, name):
    rows = [row for rows in spec["datasets"].values() for row in rows if row.get("group") == "trained"]
    return [row[name] for row in rows]


def test_a_band_ends_where_no_value_can_lie(run_of):
    rows = _rows([0.05, 0.5, 0.97], row=small_run.identity)
    spec = drawn_figures(run_of(rows, "identity_neighbours"), "knows")["identity"].panels[0].spec
    assert _drawn(spec, "low") == pytest.approx([0.0, 0.4, 0.87])
    assert _drawn(spec, "high") == pytest.approx([0.15, 0.6, 1.0])
    assert _domain(spec)[0] == 0.0
    run = run_of(rows, "mine")
    run.update(own=["mine"])
    spec = drawn_figures(run, "own")["own-mine"].panels[0].spec
    assert min(_drawn(spec, "low")) < 0  # where nothing is declared


def test_a_value_beyond_its_bounds_is_not_hidden(run_of):
    """An unbiased estimate of what cannot be negative may be."""
    row = small_run.information("masked-lm", 0, value=-0.02, low=-0.3, high=0.1, baseline=float("nan"), count=9)
    spec = drawn_figures(run_of([row]), "knows")["mi-input"].panels[0].spec
    assert _drawn(spec, "low") == [-0.02]


def test_charts_of_one_frame_have_its_axes(run_of):
    short, long = (Figures(run_of(_rows(values)))["mi-input"] for values in ([1.0, 2.0], [5.0, 4.0, 6.0, 7.0]))
    specs = [chart.to_dict() for chart in short.beside(long, names=("short", "long")).charts]
    apart = [_domain(one.chart.to_dict()) for one in (short, long)]
    low, high = min(low for low, _ in apart), max(high for _, high in apart)
    assert _domain(specs[0]) == _domain(specs[1]) == [low, high]
    ends = {tuple(layer["encoding"]["x"]["scale"]["domain"]) for spec in specs for layer in spec["layer"][:1]}
    assert ends == {(-0.15, 3.05)}
    assert low <= 0.9
    assert high >= 7.1


def test_deep_models_get_fewer_ticks(chart):
    spec = chart([1.0 + i / 100 for i in range(49)])
    axis = next(layer["encoding"]["x"]["axis"] for layer in spec["layer"] if "axis" in layer["encoding"]["x"])
    assert len(axis["values"]) <= 13
    assert axis["values"][:2] == [0, 4]


def test_units_are_on_the_axis(chart):
    assert "information about the input token (nats)" in json.dumps(chart([1.0, 2.0]))


def test_charts_of_more_rows_than_altair_allows_are_drawn(run_of) -> None:
    rows = [row for number in range(6) for row in _rows([0.5] * 10, row=small_run.identity, model=f"m{number}")]
    with alt.data_transformers.enable("default", max_rows=50):
        figure = drawn_figures(run_of(rows, "identity_neighbours", kind="analyze"), "knows")["identity"]
        assert len(_drawn(figure.panels[0].spec, "value")) == len(rows) == 60
        with pytest.raises(alt.MaxRowsError):  # the user's own limit stays
            alt.Chart(pd.DataFrame({"layer": range(60)})).mark_point().to_dict()


def _texts(spec):
    return [row["text"] for rows in spec["datasets"].values() for row in rows if "text" in row]


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ([0.5, 0.5, 0.5], ["untrained"]),
        ([0.2, 0.2, 0.8], ["untrained model c", "untrained, others"]),
        ([0.2, 0.5, 0.8], ["untrained model a", "untrained model b", "untrained model c"]),
    ],
)
def test_untrained_lines_that_end_apart_are_named(run_of, ends, named):
    parts = [
        _rows([0.0, 1.0], control=[end, end], model=f"model {name}") for name, end in zip("abc", ends, strict=True)
    ]
    run = run_of([row for part in parts for row in part], kind="analyze")
    spec = drawn_figures(run, "knows")["mi-input"].panels[0].spec
    assert sorted(text for text in _texts(spec) if text.startswith("untrained")) == named


@pytest.mark.parametrize(
    "heights", [[1, 2], [1, 4.9], [1, 5.1], [5, 1.1, 3], [0.9, 5, 3], [2, 2, 2], [0.01, 100], [10, 40, 9]]
)
def test_panels_share_a_scale_unless_one_spans_five_times_another(run_of, heights):
    place = {"stack": "encoder", "lens": "logit", "metric": "kl", "positions": "predicted"}
    rows = [
        {**small_run.keys_of("masked-lm", model=f"m{number}"), **place, "layer": layer, "count": 9, "baseline": 0.001,
         "value": value, "low": 0.0, "high": value}
        for number, height in enumerate(heights)
        for layer, value in enumerate((0.0, height, 0.0))
    ]  # fmt: skip
    figure = drawn_figures(run_of(rows, "lens", kind="analyze"), "predicts")["lens-divergence"]
    apart = max(heights) > 5 * min(heights)
    assert ("has its own scale" in figure.caption) == apart == ("Panels share one scale." not in figure.caption)
    highest = [1.06 * (height if apart else max(heights)) for height in heights]
    domains = [_domain(panel.spec) for panel in figure.panels]
    assert [high for _, high in domains] == pytest.approx(highest)
    assert {low for low, _ in domains} == {0.0}
