import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from drawn import ModelSelection, Series, shown_tables

from infoflow import heads, probing, representations
from infoflow.objectives import OBJECTIVES, Family
from infoflow.report import write_report
from infoflow.results import KEYS, RunFolder, TableSchema
from infoflow.subjects.adaptation import measures as adaptation
from infoflow.subjects.over_training import measures as over_training
from infoflow.subjects.retrieval import measures as evidence

NAMES = {
    "predict next": "causal",
    "fill in": "masked",
    "translate": "translator",
    "discriminate": "discriminator",
    "reconstruct": "denoiser",
}
"""Families, and how objectives begin that no registry knows and whose name tells that they are of one."""


def lines_of(path, objectives):
    """The lines of a study of these objectives."""
    keys = {"variant": "", "architecture": "bert", "start": "", "update": -1, "seed": 0}
    run = RunFolder(path)
    run.update(kind="study", models=[{"model": name, "objective": name, **keys} for name in objectives])
    return ModelSelection.of(run).series


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """The four shades of each family, as the lines of four of its objectives have them."""
    names = {family: [f"{start}-{number}" for number in range(4)] for family, start in NAMES.items()}
    series = lines_of(tmp_path_factory.mktemp("families"), [name for own in names.values() for name in own])
    slots = {one.key: one.slot for one in series}
    return {family: tuple(slots[name] for name in own) for family, own in names.items()}


def hue_of(family):
    """Objectives of single vectors have the hue of those that discriminate."""
    return "discriminate" if family == "static" else family


@pytest.fixture(scope="module")
def palettes(tmp_path_factory):
    """Colours by their names, on light and on dark paper, as the page's style has them."""
    page = write_report(RunFolder(tmp_path_factory.mktemp("page"))).read_text(encoding="utf-8")
    blocks = {theme: re.search(rf':root\[data-theme="{theme}"\] \{{(.*?)\}}', page) for theme in ("light", "dark")}
    return {theme: dict(re.findall(r"--([\w-]+): *(#[0-9a-f]{6})", block[1])) for theme, block in blocks.items()}


@pytest.fixture(scope="module")
def num_slots(palettes):
    return sum(name.startswith("series-") for name in palettes["light"])


@pytest.fixture(params=["light", "dark"])
def palette(request, palettes):
    return palettes[request.param]


def _luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a, b):
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_an_objective_keeps_its_colour_whatever_else_is_there(tmp_path):
    from synthetic_run import make_study

    alone = ModelSelection.of(make_study(tmp_path / "a", seeds=(1,), objectives=("masked-lm",)))
    beside = ModelSelection.of(make_study(tmp_path / "b", seeds=(1,), objectives=("translation", "masked-lm")))
    assert alone["masked-lm"].color == beside["masked-lm"].color == "var(--series-1)"


def test_lines_differ_in_colour_dash_and_marker(study):
    series = ModelSelection.of(study).series
    assert [s.key for s in series] == ["causal-lm", "masked-lm", "translation"]
    for looks in ({s.color for s in series}, {s.dash for s in series}, {s.shape for s in series}):
        assert len(looks) == 3


def test_a_variant_has_its_objectives_colour_and_another_line(tmp_path):
    objectives = ("translation", "translation+token-dropout", "masked-lm")
    run = RunFolder(tmp_path)
    models = [{"name": f"{objective}/seed-1", "objective": objective, "seed": 1} for objective in objectives]
    run.update(kind="study", models=models)
    models = ModelSelection.of(run)
    plain, variant = models["translation"], models["translation+token-dropout"]
    assert variant.color == plain.color
    assert variant.dash != plain.dash
    assert variant.shape != plain.shape
    assert variant.label == "translation with token dropout"
    assert [series.key for series in models.series] == ["masked-lm", "translation", "translation+token-dropout"]


def test_models_of_one_objective_are_told_apart(tmp_path):
    run = RunFolder(tmp_path)
    names = ("bert", "roberta", "electra")
    run.update(kind="analyze", models=[{"name": name, "objective": "masked-lm", "seed": 0} for name in names])
    series = ModelSelection.of(run).series
    assert [s.label for s in series] == list(names)
    assert len({s.slot for s in series}) == 3
    assert series[0].slot == 1  # the first keeps its objective's colour


def test_more_models_than_colours_still_have_one_each(tmp_path, num_slots):
    run = RunFolder(tmp_path)
    run.update(kind="analyze", models=[{"name": f"m{i}", "objective": "encoder", "seed": 0} for i in range(40)])
    series = ModelSelection.of(run).series
    assert all(0 <= s.slot < num_slots for s in series)
    assert len({(s.slot, s.dash, s.shape) for s in series[:num_slots]}) == num_slots == 25


def test_twenty_objectives_have_looks_of_their_families(tmp_path, families):
    run = RunFolder(tmp_path)
    names = [
        *("causal-lm", "prefix-lm", "permutation-lm", "masked-lm", "span-masking", "denoising", "translation"),
        *("summarisation", "replaced-token-detection", "next-sentence", "sentence-order", "contrastive"),
        *("skip-gram", "cbow", "glove", "parsing", "tagging"),
    ]
    variants = [("masked-lm", "static"), ("masked-lm", "whole words"), ("translation", "token-dropout")]
    entries = [(name, "") for name in names] + variants
    keys = {"architecture": "bert", "start": "", "update": -1, "seed": 0}
    models = [{"model": f"{a}{b}", "objective": a, "variant": b, **keys} for a, b in entries]
    run.update(kind="study", models=models)
    models = ModelSelection.of(run)
    assert len(models.series) == 20
    assert len({(s.slot, s.dash, s.shape) for s in models.series}) == 20
    hues = {frozenset(slots): family for family, slots in families.items()}
    family = {s.key: next((hues[slots] for slots in hues if s.slot in slots), "") for s in models.series}
    assert family["span-masking"] == family["masked-lm+static"] == "fill in"
    # Skip-gram is registered and shares their hue: its four shades are not enough for five.
    assert family["skip-gram"] == family["sentence-order"] == "discriminate"
    assert family["contrastive"] == family["parsing"] == family["tagging"] == ""
    assert [s.key for s in models.series[:3]] == ["causal-lm", "masked-lm", "masked-lm+static"]
    assert models["masked-lm+static"].color == models["masked-lm+whole words"].color == models["masked-lm"].color


@dataclass
class _Toy:
    family: str


def register(monkeypatch, families_of):
    """These objectives and no other are registered, of these families."""
    for name in reversed(list(OBJECTIVES)):  # put back from the last, they have their order again
        monkeypatch.delitem(OBJECTIVES, name)
    for name, family in families_of.items():
        monkeypatch.setitem(OBJECTIVES, name, _Toy(family))


def test_a_registered_objective_has_the_hue_that_it_declares_and_the_shade_of_its_place(
    tmp_path, monkeypatch, families
):
    """Whatever its name says, and whichever of its relatives are in the run."""
    known = {"causal-lm": "predict next", "masked-lm": "fill in"}
    register(monkeypatch, known | {"cbow": "predict next", "jigsaw": "fill in", "noise": "reconstruct"})
    looks = [
        {one.key: (one.slot, one.dash, one.shape) for one in lines_of(tmp_path / "-".join(names), names)}
        for names in (("noise", "causal-lm", "cbow", "jigsaw"), ("cbow",), ("noise", "cloze"))
    ]
    assert {key: look[0] for key, look in looks[0].items()} == {
        "causal-lm": families["predict next"][0],
        "cbow": families["predict next"][1],
        "jigsaw": families["fill in"][1],
        "noise": families["reconstruct"][0],
    }
    assert list(looks[0]) == ["causal-lm", "cbow", "jigsaw", "noise"]  # as the registry has them
    assert looks[1]["cbow"] == looks[0]["cbow"]
    assert looks[2]["noise"] == looks[0]["noise"]
    assert looks[2]["cloze"][0] == families["fill in"][0]  # which no line of this run owns


def test_all_registered_objectives_are_told_apart(tmp_path, families):
    series = lines_of(tmp_path, OBJECTIVES)
    assert len({(each.slot, each.dash, each.shape) for each in series}) == len(OBJECTIVES)
    for each in series:
        family = OBJECTIVES[each.key].family
        assert each.slot in families[hue_of(family)]  # a relative beyond its shades stays in its hue
    for slots in families.values():
        counts = [sum(each.slot == slot for each in series) for slot in slots]
        assert max(counts) - min(counts) <= 1 or min(counts) == 0
    assert [each.slot for each in series[:3]] == [0, 1, 2]


def test_every_registered_objective_declares_its_family():
    assert {objective.family for objective in OBJECTIVES.values()} <= set(get_args(Family))


def test_every_family_has_a_hue(tmp_path, monkeypatch, families):
    toys = {f"toy {number}": family for number, family in enumerate(get_args(Family))}
    register(monkeypatch, toys)
    slots = {one.key: one.slot for one in lines_of(tmp_path, toys)}
    assert {hue_of(family) for family in toys.values()} == set(families)
    assert all(slots[name] in families[hue_of(family)] for name, family in toys.items())


# Machado, Oliveira and Fernandes (2009): what people without one kind of cone see, in linear light.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def _seen(color):
    """OKLab (Ottosson 2020) of a colour under each deficiency, times 100."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_cones = [
        [0.41222147, 0.53633254, 0.05144599],
        [0.2119035, 0.6806995, 0.1073969],
        [0.0883025, 0.2817188, 0.6299787],
    ]
    to_lab = [
        [0.21045426, 0.79361779, -0.00407205],
        [1.9779985, -2.4285922, 0.4505937],
        [0.0259040, 0.7827718, -0.8086758],
    ]
    seen = [np.clip(np.array(matrix) @ linear, 0, 1) for matrix in DEFICIENCIES.values()]
    return np.array([100 * np.array(to_lab) @ np.cbrt(np.array(to_cones) @ one) for one in seen])


def _apart(palette, one, other):
    """The least distance of two slots under any deficiency; 2 is what one can just see."""
    a, b = (_seen(palette[f"series-{slot}"]) for slot in (one, other))
    return np.linalg.norm(a - b, axis=1).min()


def test_families_are_told_apart_with_any_colour_vision(palette, families):
    firsts = [slots[0] for slots in families.values()]
    assert min(_apart(palette, *pair) for pair in combinations(firsts, 2)) > 11
    assert min(_apart(palette, *pair) for slots in families.values() for pair in combinations(slots, 2)) > 5.5


def test_looks_of_near_colours_differ_in_dash_and_mark(palette, families):
    looks = {slot: Series(key="", label="", slot=slot) for slots in families.values() for slot in slots}
    for one, other in combinations(looks, 2):
        assert _apart(palette, one, other) > 2.5
        if _apart(palette, one, other) < 5:
            assert looks[one].dash != looks[other].dash
            assert looks[one].shape != looks[other].shape


def test_the_encoder_is_what_is_compared(study):
    models = ModelSelection.of(study)
    heads = shown_tables(study)["head_confidence"]
    main = models.main(heads)
    assert set(main.loc[main["series"] == "translation", "stack"]) == {"encoder"}
    assert set(main.loc[main["series"] == "causal-lm", "stack"]) == {"decoder"}
    assert len(main) + len(models.others(heads)) == len(heads)


def test_tables_without_trained_or_seed_are_read_as_trained(tmp_path):
    run = RunFolder(tmp_path)
    run.update(kind="analyze", models=[{"name": "m", "objective": "encoder"}])
    named = ModelSelection.of(run).named(pd.DataFrame({"model": ["m"], "objective": ["encoder"], "value": [1.0]}))
    assert named["trained"].all()
    assert list(named["seed"]) == [0]


def test_text_and_lines_stand_out_from_the_page(palette, num_slots):
    assert _contrast(palette["ink"], palette["paper"]) > 7
    assert _contrast(palette["soft"], palette["paper"]) > 4.5
    assert all(_contrast(palette[f"series-{slot}"], palette["paper"]) >= 3 for slot in range(num_slots))


def test_the_three_objectives_differ_on_a_grey_print(palette):
    lightness = sorted(_luminance(palette[f"series-{slot}"]) ** (1 / 3) for slot in range(3))
    assert min(b - a for a, b in pairwise(lightness)) > 0.04


def test_both_palettes_name_the_same_colours(palettes):
    assert set(palettes["light"]) == set(palettes["dark"])
    assert len(palettes["light"]) > 30


def tables_of_measures():
    """The schema of every table that a measure of the package makes of one model."""
    rooms = (adaptation, evidence, heads, over_training, probing, representations)
    made = [getattr(room, name) for room in rooms for name in dir(room)]
    found = [one if isinstance(one, TableSchema) else getattr(one, "table", None) for one in made]
    schemas = {schema.name: schema for schema in found if isinstance(schema, TableSchema)}
    keys = {"model_a", *(column.name for column in KEYS)}
    return [schema for schema in schemas.values() if not keys & set(schema.column_names)]


FILLED = {"string": "x", "int64": 1, "float64": 0.5, "bool": True, "list<float64>": [0.5] * 3}


@pytest.mark.parametrize("schema", tables_of_measures(), ids=lambda schema: schema.name)
def test_a_table_that_stands_alone_keeps_its_rows(tmp_path, schema):
    """Which models and stacks there are follows from the tables that a run has, not from a list of names."""
    keys = {"model": "m", "objective": "masked-lm", "variant": "", "architecture": "bert", "start": "", "seed": 0}
    row = {column.name: FILLED[column.dtype] for column in schema.columns} | keys | {"update": -1, "trained": True}
    frame = pd.DataFrame([row | ({"stack": "decoder"} if "stack" in row else {})] * 3)
    run = RunFolder(tmp_path)
    run.tables.write(frame, schema.with_keys(*KEYS))
    run.update(kind="study")
    tables = shown_tables(run)
    assert len(tables.models.main(tables[schema.name])) == 3
