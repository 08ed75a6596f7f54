import html
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
import small_run
from drawn import drawn_figures, seeds_of_lines, tell
from synthetic_run import write_again

from infoflow.report import write_report
from infoflow.results import Column, RunFolder


def text_of(markup: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markup)).strip()


def study_line(page: str) -> str:
    """The sentence below the title."""
    return text_of(re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)[1])


def model_rows(page: str) -> dict[str, dict[str, str]]:
    """The table of what was studied: by model, its cells by their columns."""
    head, body = re.search(
        r'aria-label="What was studied">\s*<table[^>]*>\s*<thead>(.*?)</thead>\s*<tbody>(.*?)</tbody>', page, re.DOTALL
    ).groups()
    _, *columns = re.findall(r"<th[^>]*>(.*?)</th>", head)
    rows = [[text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in body.split("</tr>")]
    return {name: dict(zip(columns, cells, strict=True)) for name, *cells in filter(None, rows)}


@pytest.fixture(scope="module")
def page(report):
    return report.read_text(encoding="utf-8")


def page_of(run) -> str:
    return write_report(run).read_text(encoding="utf-8")


def test_the_line_says_models_data_and_time(page):
    assert study_line(page) == (
        "Causal LM, masked LM and translation: one architecture, 3 seeds each, trained and measured on tatoeba-en-fr "
        "(92,397 sentences and 665,258 words), in 1 h 17 min."
    )


def test_an_analysis_is_not_called_trained(analysis):
    assert study_line(page_of(analysis)).startswith("bert-tiny, measured on wiki.txt")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/data/train.en.gz,/data/train.de.gz", "train.en.gz and train.de.gz"),
        ("grammar:50,000", "grammar:50,000"),
        ("hf:team/news", "hf:team/news"),
    ],
)
def test_files_go_by_their_own_names(tmp_path, name, said):
    run = RunFolder(tmp_path)
    run.update(kind="analyze", models=[{"name": "bert-tiny", "objective": "masked-lm", "seed": 0}])
    run.update(corpus={"name": name})
    assert study_line(page_of(run)) == f"bert-tiny, measured on {said}."


def test_the_table_leaves_out_what_no_model_has(page, analysis):
    rows = model_rows(page)
    assert list(rows) == ["causal LM", "masked LM", "translation"]
    assert "updates" in rows["causal LM"]
    assert model_rows(page_of(analysis)) == {
        "bert-tiny": {"task": "masked LM", "parameters": "4.4 million", "time": "12 s"}
    }


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


def test_a_claim_that_does_not_hold_names_the_known_cause(story, page):
    causes = {finding.id: finding.cause for finding in story.findings if finding.cause}
    assert set(causes) == {"representations:V-4", "representations:V-7"}  # one is undetermined, the other fails
    assert all(cause in html.unescape(page) and "experiments/studies/" in cause for cause in causes.values())


def test_verdicts_are_counted(story, page):
    (line,) = (text_of(part) for part in re.findall(r"<p[^>]*>([^<]*claims were checked[^<]*)</p>", page))
    assert line == (
        "9 claims were checked on these models: 6 hold, 1 fails, 1 stays undetermined and 1 cannot be tested here."
    )
    assert sum(map(int, re.findall(r"\d+", line)[1:])) == len(story.findings)


@pytest.mark.parametrize("published", [1.33, "1.33 nats"])
def test_published_numbers_may_be_text_or_numbers(study, tmp_path, published):
    stored = study.tables.stored("findings")
    first = stored.frame.head(1).astype({"published": object}).assign(published=[published])
    columns = tuple(
        Column(one.name, "float64", one.unit, one.description) if one == "published" and published == 1.33 else one
        for one in stored.schema.columns
    )
    run = RunFolder(tmp_path)
    write_again(run, first, replace(stored.schema, columns=columns))
    assert tell(run).findings[0].published == "1.33 nats"


def test_seeds_are_counted_before_they_are_named(tmp_path):
    """Of a model that run.json does not name, none is known."""
    rows = [
        small_run.identity(objective, 0, seed, **small_run.estimate(0.5, 0.1))
        for objective, seeds in (("causal-lm", (0,)), ("masked-lm", (2, 0, 1)), ("translation", (0,)))
        for seed in seeds
    ]
    run = small_run.write_run(tmp_path, identity_neighbours=rows)
    run.update(models=[model for model in run.read()["models"] if model["objective"] != "translation"])
    cells = {name: cells["seeds"] for name, cells in model_rows(page_of(run)).items()}
    assert cells == {"causal LM": "1 (seed 0)", "masked LM": "3 (seeds 0, 1 and 2)", "translation": "–"}


def test_a_long_answer_shows_its_first_sentence_and_folds_the_rest(study):
    figure = replace(next(iter(drawn_figures(study, "changes").values())), words="", answer=["One.", "x" * 300 + "."])
    assert (figure.first, figure.further) == (["One."], ["x" * 300 + "."])
    assert not replace(figure, answer=["One.", "Two."]).further
    worded = replace(figure, words="In words.")
    assert worded.folds
    assert (worded.first, worded.further) == (worded.answer, [])


def test_seeds_are_counted_by_way_of_training():
    """Readers with passages may have other seeds than the models beside them."""
    rows = [("masked-lm", "", 0), *(("read-gold", variant, seed) for variant in ("", "pairs") for seed in (0, 1, 2))]
    entries = pd.DataFrame(rows, columns=["objective", "variant", "seed"])
    assert seeds_of_lines(entries) == [1, 3]
    assert seeds_of_lines(entries[1:]) == [3]
    assert seeds_of_lines(entries.drop(columns="seed")) == [1]
