import math
import re
import shutil

import pandas as pd
import pytest
from drawn import tell

from infoflow.report._summary import model_rows, scorecard, study_line, verdict_line
from infoflow.results import RunFolder


def test_the_line_says_models_data_and_time(study, story):
    line = study_line(study, story.models)
    assert line == (
        "Causal LM, masked LM and translation: one architecture, 3 seeds each, trained and measured on tatoeba-en-fr "
        "(92,397 sentences and 665,258 words), in 1 h 17 min."
    )


def test_an_analysis_is_not_called_trained(analysis):
    assert study_line(analysis, tell(analysis).models).startswith("bert-tiny, measured on wiki.txt")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/data/train.en.gz,/data/train.de.gz", "train.en.gz and train.de.gz"),
        ("grammar:50,000", "grammar:50,000"),
        ("hf:team/news", "hf:team/news"),
    ],
)
def test_files_go_by_their_own_names(analysis, tmp_path, name, said):
    run = RunFolder(shutil.copytree(analysis.path, tmp_path / "run"))
    run.update(corpus={"name": name})
    assert study_line(run, tell(run).models).startswith(f"bert-tiny, measured on {said}")


def test_the_table_leaves_out_what_no_model_has(study, story, analysis):
    assert "updates" in model_rows(study, story.models)[0].cells
    (row,) = model_rows(analysis, tell(analysis).models)
    assert row.cells == {"task": "masked LM", "parameters": "4.4 million", "time": "12 s"}


def test_every_finding_links_to_a_figure_that_reads_its_table(study, story):
    figures = {figure.id: figure for figure in story.figures}
    for finding in story.findings:
        row = next(row for row in study.tables["findings"].to_dict("records") if row["id"] == finding.id)
        assert set(figures[finding.figure].tables) & {name.strip() for name in row["tables"].split(",")}


def test_effect_interval_and_published_number_stand_together(story):
    finding = next(f for f in story.findings if f.id == "representations:V-1")
    assert (finding.effect, finding.interval, finding.unit) == ("1.33", "1.25 to 1.41", "nats")
    assert finding.published == "1.33 nats"
    assert finding.threshold == "0.33"
    assert finding.short_source == "Voita, Sennrich and Titov 2019"


def test_the_small_picture_keeps_the_order_of_the_numbers(study, story):
    for finding, row in zip(story.findings, study.tables["findings"].to_dict("records"), strict=True):
        values = {"value": row["effect"], **{k: row[k] for k in ("low", "high", "threshold", "control")}, "zero": 0.0}
        if not math.isfinite(row["effect"]):
            assert finding.bar == {}
            continue
        ordered = sorted(values, key=values.__getitem__)
        places = [finding.bar[name] for name in ordered]
        assert places == sorted(places)
        assert 0 <= places[0] <= places[-1] <= 100


def test_what_was_not_measured_has_a_reason_and_no_number(story):
    finding = next(f for f in story.findings if f.verdict == "not testable here")
    assert finding.effect == finding.interval == finding.control == ""
    assert "BLEU 2.1" in finding.reason


def test_verdicts_are_counted(story):
    findings = story.findings
    line = verdict_line(findings)
    assert line == (
        "9 claims were checked on these models: 6 hold, 1 fails, 1 stays undetermined and 1 cannot be tested here."
    )
    assert sum(map(int, re.findall(r"\d+", line)[1:])) == len(findings)


@pytest.mark.parametrize("published", [1.33, "1.33 nats"])
def test_published_numbers_may_be_text_or_numbers(tmp_path, published):
    from synthetic_run import make_study

    run = make_study(tmp_path, seeds=(1,), objectives=("causal-lm",))
    frame = run.tables["findings"].head(1).astype({"published": object})
    frame["published"] = [published]

    class Stub(RunFolder):
        tables = {"findings": frame}  # noqa: RUF012 (read only)

    assert scorecard(Stub(tmp_path), [])[0].published == "1.33 nats"


@pytest.mark.parametrize(("seeds", "text"), [((0,), "1 (seed 0)"), ((2, 0, 1), "3 (seeds 0, 1 and 2)"), ((), "–")])
def test_seeds_are_counted_before_they_are_named(seeds, text):
    from infoflow.report._summary import _seeds_cell

    assert _seeds_cell(pd.DataFrame({"seed": list(seeds)})) == text


def test_a_long_answer_shows_its_first_sentence_and_folds_the_rest(study):
    from dataclasses import replace

    from drawn import drawn_figures

    figure = replace(next(iter(drawn_figures(study, "changes").values())), words="", answer=["One.", "x" * 300 + "."])
    assert (figure.first, figure.further) == (["One."], ["x" * 300 + "."])
    assert not replace(figure, answer=["One.", "Two."]).further
    worded = replace(figure, words="In words.")
    assert worded.folds
    assert (worded.first, worded.further) == (worded.answer, [])
