import itertools
import json

import altair as alt
import pandas as pd
import pytest
from drawn import Series
from hypothesis import given
from hypothesis import strategies as st

from infoflow.report.forms._chart import bounded, finished, spread
from infoflow.report.forms._frame import Frame
from infoflow.report.forms._layer_chart import LayerChart, panel_scales, shared_range

LINE = Series(key="a", label="model a", slot=0)


def _table(values, control=None, baseline=None):
    groups = [("a", "trained", values), ("a", "untrained", control or []), ("", "baseline", baseline or [])]
    rows = [
        {"series": s, "group": g, "layer": i, "value": v, "low": v - 0.1, "high": v + 0.1, "seeds": 1, "count": 5}
        for s, g, numbers in groups
        for i, v in enumerate(numbers)
    ]
    return pd.DataFrame(rows).assign(shown="x")


def _chart(table, **options):
    return _form(table, **options).spec


def _form(table, **options):
    return LayerChart(table=table, series=[LINE], y_title="amount (nats)", baseline_name="chance", **options)


def _domain(spec):
    return next(
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in spec["layer"]
        if "scale" in layer["encoding"].get("y", {})
    )


def test_a_distant_baseline_is_named_at_the_edge_instead_of_squashing_the_curves():
    spec = _chart(_table([5.0, 4.0], control=[4.5, 4.5], baseline=[0.3, 0.3]))
    assert _domain(spec)[0] > 3
    assert "↓ chance: 0.3 (off scale)" in json.dumps(spec, ensure_ascii=False)


def test_the_only_control_may_take_more_room():
    spec = _chart(_table([5.0, 4.0], baseline=[0.3, 0.3]))
    assert _domain(spec)[0] <= 0.3
    assert "off scale" not in json.dumps(spec)


def test_even_the_only_control_does_not_squash_the_curves():
    spec = _chart(_table([5.0, 5.01], baseline=[0.3, 0.3]))
    assert _domain(spec)[0] > 4
    assert "chance: 0.3 (off scale)" in json.dumps(spec)
    rules = [layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    assert [rule["color"] for rule in rules if "strokeDash" in rule] == ["var(--control)"]


def test_bands_lie_within_the_axis():
    low, high = _domain(_chart(_table([5.0, 4.0], control=[4.5, 4.5])))
    assert low < 3.9
    assert high > 5.1


def test_a_shared_range_is_kept():
    assert _domain(_chart(_table([5.0, 4.0]), y_range=(0.0, 9.0))) == [0.0, 9.0]


def _drawn(spec, name):
    rows = [row for rows in spec["datasets"].values() for row in rows if row.get("group") == "trained"]
    return [row[name] for row in rows]


def test_a_band_ends_where_no_value_can_lie():
    table = _table([0.05, 0.5, 0.97])
    spec = _chart(table, bounds=(0.0, 1.0))
    assert _drawn(spec, "low") == pytest.approx([0.0, 0.4, 0.87])
    assert _drawn(spec, "high") == pytest.approx([0.15, 0.6, 1.0])
    assert _domain(spec)[0] == 0.0
    assert min(_drawn(_chart(table), "low")) < 0  # where nothing is declared


def test_a_value_beyond_its_bounds_is_not_hidden():
    """An unbiased estimate of what cannot be negative may be."""
    rows = bounded(pd.DataFrame({"value": [-0.02], "low": [-0.3], "high": [0.1]}), (0.0, 1.0))
    assert rows["low"].tolist() == [-0.02]


def test_charts_of_one_frame_have_its_axes():
    short, long = _form(_table([1.0, 2.0])), _form(_table([5.0, 4.0, 6.0, 7.0]))
    frame = Frame.around([short.frame, long.frame])
    specs = [form.within(frame).spec for form in (short, long)]
    assert _domain(specs[0]) == _domain(specs[1]) == [frame.low, frame.high]
    ends = {tuple(layer["encoding"]["x"]["scale"]["domain"]) for spec in specs for layer in spec["layer"][:1]}
    assert ends == {(-0.15, 3.05)}
    assert frame.low <= 0.9
    assert frame.high >= 7.1


def test_deep_models_get_fewer_ticks():
    spec = _chart(_table([1.0 + i / 100 for i in range(49)]))
    axis = next(layer["encoding"]["x"]["axis"] for layer in spec["layer"] if "axis" in layer["encoding"]["x"])
    assert len(axis["values"]) <= 13
    assert axis["values"][:2] == [0, 4]


def test_units_are_on_the_axis():
    assert "amount (nats)" in json.dumps(_chart(_table([1.0, 2.0])))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_labels_keep_their_order_and_distance(positions):
    placed = spread(positions, 0.5, 10.0)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    gaps = [placed[b] - placed[a] for a, b in itertools.pairwise(order)]
    assert all(gap >= 0.5 - 1e-9 for gap in gaps)
    assert max(placed) <= 10.0 + 1e-9


@pytest.mark.parametrize("positions", [[1.0, 5.0, 9.0], [9.0, 1.0]])
def test_labels_that_do_not_collide_stay_where_they_are(positions):
    assert spread(positions, 0.5, 10.0) == positions


def test_charts_of_very_many_models_are_drawn() -> None:
    rows = pd.DataFrame({"layer": range(5_310)})  # three layers of all pairs of 60 models
    spec = finished([alt.Chart(rows).mark_point().encode(x="layer:Q")], 100)
    assert sum(map(len, spec["datasets"].values())) == len(rows)
    with pytest.raises(alt.MaxRowsError):  # the user's own limit stays
        alt.Chart(rows).mark_point().to_dict()


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
def test_untrained_lines_that_end_apart_are_named(ends, named):
    lines = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate("abc")]
    parts = [
        _table([0.0, 1.0], control=[end, end]).replace({"series": {"a": line.key}})
        for line, end in zip(lines, ends, strict=True)
    ]
    table = pd.concat(parts, ignore_index=True)
    spec = LayerChart(table=table, series=lines, y_title="amount").spec
    assert sorted(text for text in _texts(spec) if text.startswith("untrained")) == named


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=6))
def test_panels_share_a_scale_unless_one_spans_five_times_another(heights):
    tables = [_table([0.0, height]).assign(low=0.0, high=[0.0, height]) for height in heights]
    scales = panel_scales(tables, "Panels share one scale.")
    apart = 1.06 * max(heights) > 5 * 1.06 * min(heights)
    assert (scales.shared is None) == apart == ("scale of its own" in scales.note)
    if not apart:
        assert scales.shared == shared_range(pd.concat(tables))
