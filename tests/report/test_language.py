from itertools import pairwise

import pandas as pd
import pytest

from infoflow.report._language import Cast
from infoflow.report._theme import DARK, LIGHT
from infoflow.results import RunFolder


def _luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a, b):
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_an_objective_keeps_its_colour_whatever_else_is_there(tmp_path):
    from synthetic_run import make_study

    alone = Cast.of(make_study(tmp_path / "a", seeds=(1,), objectives=("masked-lm",)))
    beside = Cast.of(make_study(tmp_path / "b", seeds=(1,), objectives=("translation", "masked-lm")))
    assert alone["masked-lm"].color == beside["masked-lm"].color == "var(--series-1)"


def test_lines_differ_in_colour_dash_and_marker(study):
    series = Cast.of(study).series
    assert [s.key for s in series] == ["causal-lm", "masked-lm", "translation"]
    for looks in ({s.color for s in series}, {s.dash for s in series}, {s.shape for s in series}):
        assert len(looks) == 3


def test_a_variant_has_its_objectives_colour_and_another_line(tmp_path):
    objectives = ("translation", "translation+token-dropout", "masked-lm")
    run = RunFolder(tmp_path)
    models = [{"name": f"{objective}/seed-1", "objective": objective, "seed": 1} for objective in objectives]
    run.update(kind="study", models=models)
    cast = Cast.of(run)
    plain, variant = cast["translation"], cast["translation+token-dropout"]
    assert variant.color == plain.color
    assert variant.dash != plain.dash
    assert variant.shape != plain.shape
    assert variant.label == "translation with token dropout"
    assert [series.key for series in cast.series] == ["masked-lm", "translation", "translation+token-dropout"]


def test_models_of_one_objective_are_told_apart(tmp_path):
    run = RunFolder(tmp_path)
    names = ("bert", "roberta", "electra")
    run.update(kind="analyze", models=[{"name": name, "objective": "masked-lm", "seed": 0} for name in names])
    series = Cast.of(run).series
    assert [s.label for s in series] == list(names)
    assert len({s.slot for s in series}) == 3
    assert series[0].slot == 1  # the first keeps its objective's colour


def test_more_models_than_colours_still_have_one_each(tmp_path):
    run = RunFolder(tmp_path)
    run.update(kind="analyze", models=[{"name": f"m{i}", "objective": "encoder", "seed": 0} for i in range(11)])
    assert all(0 <= s.slot < 8 for s in Cast.of(run).series)


def test_the_encoder_is_what_is_compared(study):
    cast = Cast.of(study)
    heads = cast.named(study.tables["head_confidence"])
    main = cast.main(heads)
    assert set(main.loc[main["series"] == "translation", "stack"]) == {"encoder"}
    assert set(main.loc[main["series"] == "causal-lm", "stack"]) == {"decoder"}
    assert len(main) + len(cast.others(heads)) == len(heads)


def test_tables_without_trained_or_seed_are_read_as_trained(tmp_path):
    run = RunFolder(tmp_path)
    run.update(kind="analyze", models=[{"name": "m", "objective": "encoder"}])
    named = Cast.of(run).named(pd.DataFrame({"model": ["m"], "objective": ["encoder"], "value": [1.0]}))
    assert named["trained"].all()
    assert list(named["seed"]) == [0]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_text_and_lines_stand_out_from_the_page(palette):
    assert _contrast(palette["ink"], palette["paper"]) > 7
    assert _contrast(palette["soft"], palette["paper"]) > 4.5
    assert all(_contrast(palette[f"series-{slot}"], palette["paper"]) >= 3 for slot in range(8))


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_the_three_objectives_differ_on_a_grey_print(palette):
    lightness = sorted(_luminance(palette[f"series-{slot}"]) ** (1 / 3) for slot in range(3))
    assert min(b - a for a, b in pairwise(lightness)) > 0.04


def test_both_palettes_name_the_same_colours():
    assert set(LIGHT) == set(DARK)
