"""The section over scale: a panel for each claim, in order, with hostile names as text."""

import json

import pandas as pd
import pytest
from scipy import stats
from support.invented_scales import scale_run

from infoflow.findings import FINDINGS_AT_SCALE, FINDINGS_OVER_SCALE
from infoflow.over_training import STAGES_BY_WARMUP
from infoflow.report import write_report
from infoflow.results import RunFolder
from infoflow.subjects.over_scale.claims import TRENDS, findings_over_scale

HOSTILE = "<script>alert(1)</script>"
FACTS = {"run": HOSTILE, "width": 64, "layers": 3, "decoder_layers": 3, "corpus": HOSTILE, "tokens": 3e5}


@pytest.fixture(scope="module")
def found():
    runs = [
        scale_run(f"{HOSTILE}-{width}-{place}", fall, tokens, width=width, corpus=HOSTILE, seeds=seeds)
        for width in (64, 128)
        for place, (fall, tokens, seeds) in enumerate([(0.6, 3e5, (0, 1, 2)), (0.9, 1e6, (0,)), (1.2, 3e6, (0, 1, 2))])
    ]
    return findings_over_scale(runs)


@pytest.fixture(scope="module")
def run(found, tmp_path_factory):
    return _written(found, tmp_path_factory.mktemp("over-scale"))


def _written(found, path):
    run = RunFolder(path)
    for schema in (FINDINGS_OVER_SCALE, TRENDS, FINDINGS_AT_SCALE):
        run.tables.write(found[schema.name], schema)
    run.update(kind="over-scale", title="Published claims over scale", runs=[FACTS, {**FACTS, "tokens": 3e6}])
    return run


@pytest.fixture(scope="module")
def figure(run):
    from drawn import tell

    (figure,) = tell(run).figures
    return figure


def test_a_panel_for_each_claim_that_was_tested_at_two_scales(figure, found):
    frame = found["findings_over_scale"]
    tested = frame[frame["verdict"] != "not testable here"]
    assert set(figure.findings) == set(tested["id"])
    assert len(figure.panels) == len(figure.payload["claims"]) == tested["id"].nunique()
    assert figure.panels[0].title.startswith("V-1: ")
    assert set(figure.data["id"]) == set(figure.findings)
    assert figure.answer[0].startswith(("Of one claim", f"Of {len(figure.panels)} claims"))


def test_a_panel_has_intervals_threshold_and_published_value(figure):
    text = json.dumps(figure.panels[0].spec)
    assert '"needed"' in text
    assert '"published"' in text
    encodings = [layer.get("encoding", {}) for layer in figure.panels[0].spec["layer"]]
    assert any(one.get("y2", {}).get("field") == "high" for one in encodings)
    x = next(one["x"] for one in encodings if one.get("x", {}).get("scale"))
    assert x["scale"]["type"] == "log"
    assert [entry["label"] for entry in figure.payload["widths"]] == ["width 64", "width 128"]


def _rows(spec, layer) -> list[dict]:
    data = layer.get("data", spec.get("data", {}))
    return data["values"] if "values" in data else spec["datasets"][data["name"]]


def test_what_holds_and_grows_comes_first(figure):
    verdicts = [one["verdict"] for one in figure.payload["claims"]]
    order = ["holds", "undetermined", "fails"]
    assert verdicts == sorted(verdicts, key=order.index)


def test_the_page_holds_hostile_names_as_text(run):
    page = write_report(run).read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "Which claims come closer to the published values" in page
    assert "Over scale</b>" in page
    assert "2 studies compared: models of width 64" in page


def test_one_study_is_told_as_one(found, tmp_path):
    run = RunFolder(tmp_path)
    scale = found[FINDINGS_OVER_SCALE.name]
    run.tables.write(scale[scale["run"] == scale["run"].iloc[0]], FINDINGS_OVER_SCALE)
    for schema in (TRENDS, FINDINGS_AT_SCALE):
        run.tables.write(found[schema.name], schema)
    run.update(kind="over-scale", title="Published claims over scale", runs=[FACTS])
    page = write_report(run).read_text(encoding="utf-8")
    assert "One study over its training: models of width 64" in page
    assert "1 studies" not in page
    assert "1 runs" not in page


def test_without_two_scales_the_section_says_so(tmp_path, found):
    from drawn import tell

    run = RunFolder(tmp_path)
    scale = found["findings_over_scale"]
    one = scale[scale["run"] == scale["run"].iloc[0]]
    run.tables.write(one, FINDINGS_OVER_SCALE)
    run.tables.write(found["trends"].head(0), TRENDS)
    run.update(kind="over-scale", title="", runs=[])
    (section,) = tell(run).sections
    assert section.notes == ["No claim could be tested at two scales."]
    assert not section.figures


def stages(values=(1.0, 1.0, 1.0), gap=0.1, objective="causal-lm"):
    """INVENTED: unigrams so many doublings of updates later by seed, at one sum of rates; bigrams have no stage."""
    keys = {"objective": objective, "variant": "", "architecture": "bert", "start": "", "update": -1, "trained": True}
    rows = []
    for seed, value in enumerate(values):
        for compared, grown in (
            ("warm-up", {"updates": value, "rates": 0.0}),
            ("seed", {"updates": -0.2, "rates": 0.3}),
        ):
            for order in (1, 2):
                for measure, doublings in grown.items():
                    number = doublings if order == 1 else float("nan")
                    own = {"model": f"{objective}/seed-{seed}", "seed": seed, "compared": compared, "other_seed": seed}
                    place = {"warmup": 100, "other_warmup": 400, "order": order, "measure": measure, "gap": gap}
                    rows.append({**keys, **own, **place, "value": number, "replicates": [number] * 40})
    return pd.DataFrame(rows)


def warmups(tmp_path, found, table):
    from drawn import tell

    run = RunFolder(tmp_path)
    scale = found["findings_over_scale"]
    run.tables.write(scale[scale["run"] == scale["run"].iloc[0]], FINDINGS_OVER_SCALE)
    run.tables.write(found["trends"].head(0), TRENDS)
    run.tables.write(STAGES_BY_WARMUP.conform(table), STAGES_BY_WARMUP)
    run.update(kind="over-scale", title="", runs=[])
    return tell(run).sections


def test_two_warmups_have_a_section_in_place_of_the_empty_one(tmp_path, found):
    (section,) = warmups(tmp_path, found, stages())
    (figure,) = section.figures
    assert figure.question == "How much later do stages come with a warm-up of 400 updates instead of 100?"
    assert figure.answer == [
        "In causal LM, the stage of unigrams comes 1.00 doublings (0.90 to 1.10) of updates later, at 0.0 doublings "
        "(−0.2 to 0.2) more of the summed rates."
    ]
    text = json.dumps(figure.panels[0].spec)
    assert "unigrams, updates" in text
    assert "bigrams" not in text
    assert "0.20 to the next seed" in text


def test_families_of_blocks_have_a_panel_each(tmp_path, found):
    both = [stages(values=(value,) * 3).assign(architecture=family) for value, family in ((1.0, "bert"), (0.5, "gpt2"))]
    (section,) = warmups(tmp_path, found, pd.concat(both, ignore_index=True))
    assert [panel.title for panel in section.figures[0].panels] == ["causal LM (bert)", "causal LM (gpt2)"]
    assert ["1.00 doublings" in section.figures[0].answer[0], "0.50 doublings" in section.figures[0].answer[1]] == [
        True
    ] * 2


def test_the_interval_of_seeds_counts_where_it_is_wider_than_a_step(tmp_path, found):
    (section,) = warmups(tmp_path, found, stages(values=(0.4, 1.0, 1.6)))
    half = stats.t.ppf(0.975, 2) * 0.6 / 3**0.5
    assert f"1.0 doublings ({1 - half:.1f} to {1 + half:.1f})".replace("-", "−") in section.figures[0].answer[0]


def test_without_a_minimum_there_is_no_section_on_warmups(tmp_path, found):
    sections = warmups(tmp_path, found, stages(values=(float("nan"),)).assign(value=float("nan")))
    assert [section.id for section in sections] == ["over-scale", "further"]


@pytest.mark.parametrize(("widths", "names"), [((64, 128), {"64", "128", "64, grammar"})])
def test_a_line_is_named_by_its_width_and_by_a_corpus_of_few_runs(tmp_path, widths, names):
    from drawn import tell

    cells = [("grammar:9", widths[0], 3e5), *(("tatoeba", width, tokens) for tokens in (3e5, 3e6) for width in widths)]
    runs = [
        scale_run(f"{corpus[0]}-{width}-{tokens:.0f}", 0.6, tokens, width=width, corpus=corpus)
        for corpus, width, tokens in cells
    ]
    (figure,) = tell(_written(findings_over_scale(runs), tmp_path)).figures
    assert [entry["label"] for entry in figure.payload["corpora"]] == ["tatoeba", "grammar:9"]
    spec = figure.panels[0].spec
    drawn = [row for layer in spec["layer"] if layer["mark"]["type"] == "text" for row in _rows(spec, layer)]
    assert {row["name"] for row in drawn if "name" in row} == names
