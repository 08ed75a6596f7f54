"""`analyze` with measures of the user's own: measured beside the others, kept by their code, drawn in the report."""

import re

import numpy as np
import pandas as pd
import pytest

from infoflow import measure_of
from infoflow.foundation import UserError, on_halves
from infoflow.heads import Entropy
from infoflow.results import RunFolder
from infoflow.studies import MeasureExternal, Run, analyze, merge

FILE = """
import infoflow

state_norm = infoflow.measure_of(lambda states: states.norm(dim=-1), name="state_norm", unit="length")
sharpest = infoflow.measure_of(
    lambda weights: weights.amax(-1), of="attention", name="sharpest", description="Largest <b>weight</b> of a query."
)
"""


@pytest.fixture(scope="module")
def tiny(matched_models, tmp_path_factory) -> str:
    folder, model = tmp_path_factory.mktemp("models") / "tiny", matched_models["masked-lm"]
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def analysed(tiny, mine, tmp_path_factory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "own"
    return analyze(tiny, corpus="grammar:80", only="head_entropy", measures=mine, out=out)


def test_own_tables_lie_beside_the_others_with_their_control(analysed, tiny, matched_models) -> None:
    """The same numbers as without a study, from the function itself."""
    assert set(analysed.tables) == {"head_entropy", "state_norm", "sharpest", *_always(analysed)}
    rows = pd.DataFrame(analysed.tables["state_norm"])
    assert set(rows["trained"]) == {True, False}
    import infoflow

    norm = measure_of(lambda states: (states**2).sum(-1).sqrt(), name="slow")
    corpus = infoflow.load_corpus("grammar:80")
    slow = infoflow.measure(tiny, corpus, [norm])["slow"]
    np.testing.assert_allclose(rows[rows["trained"]]["value"], slow["value"], rtol=1e-5)


def _always(run: Run) -> set[str]:
    return {name for name in run.tables if name == "checkpoint_checks"}


def test_the_report_draws_them_and_escapes_what_they_say(analysed) -> None:
    page = (analysed.path / "report.html").read_text(encoding="utf-8")
    assert "What do your own measures find?" in page
    assert "Largest &lt;b&gt;weight&lt;/b&gt; of a query." in page
    assert "Largest <b>weight" not in page
    figure = analysed.figures["own/table-sharpest"]
    pattern = r"Highest in tiny at layer (\d), head (\d): ([\d.]+); the mean over heads is [\d.]+ \("
    told = re.match(pattern, figure.answer)
    assert told is not None, figure.answer
    row = analysed.tables["sharpest"].query(f"trained and layer == {told[1]} and head == {told[2]}").iloc[0]
    halves = on_halves(np.array([row["value"]]), [row["replicates"]])  # the first one chose the head
    assert float(told[3]) == pytest.approx(halves.second[0], abs=0.001)


def test_a_file_that_was_changed_is_measured_anew_and_nothing_else_is(analysed, tiny, mine, tmp_path, monkeypatch):
    measured: list[list[str]] = []
    plain = MeasureExternal.measure
    monkeypatch.setattr(
        MeasureExternal, "measure", lambda self, names, **how: measured.append(names) or plain(self, names, **how)
    )
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    options = {"corpus": "grammar:80", "only": "head_entropy", "control": False, "out": tmp_path / "run"}
    before = analyze(tiny, measures=path, **options).tables["state_norm"]
    path.write_text(FILE.replace("states.norm(dim=-1)", "2 * states.norm(dim=-1)"))
    after = analyze(tiny, measures=path, **options).tables["state_norm"]
    assert [sorted(names) for names in measured] == [
        ["head_entropy", "sharpest", "state_norm"],
        ["sharpest", "state_norm"],
    ]
    np.testing.assert_allclose(after["value"], 2 * before["value"], rtol=1e-6)


def test_shards_of_a_file_merge_to_the_whole(tiny, mine, tmp_path) -> None:
    options = {"corpus": "grammar:80", "only": "head_entropy", "control": False, "measures": mine}
    whole = analyze(tiny, out=tmp_path / "whole", **options)
    for index in range(2):
        analyze(tiny, out=tmp_path / str(index), shard=(index, 2), **options)
    with pytest.raises(UserError, match=r"their author's own measures: .*mine.py.*executed only if you name"):
        merge([tmp_path / "0", tmp_path / "1"], tmp_path / "merged")
    merged = merge([tmp_path / "0", tmp_path / "1"], tmp_path / "merged", mine)
    for name in ("state_norm", "sharpest"):
        pd.testing.assert_frame_equal(pd.DataFrame(merged.tables[name]), pd.DataFrame(whole.tables[name]), rtol=1e-6)
    assert RunFolder(tmp_path / "merged").read()["own"] == ["sharpest", "state_norm"]


def test_objects_are_measures_too_but_not_in_shards(tiny, tmp_path) -> None:
    mean = measure_of(lambda states: states.mean(-1), name="mean_state")
    options = {"corpus": "grammar:80", "only": "head_entropy", "control": False}
    run = analyze(tiny, measures=[mean], out=tmp_path / "run", **options)
    assert "mean_state" in run.tables
    with pytest.raises(UserError, match="Name a Python file instead"):
        analyze(tiny, measures=mean, shard=(0, 2), out=tmp_path / "shard", **options)


@pytest.mark.parametrize(
    ("measures", "message"),
    [("none.py", "There is no file none.py"), ([], "an empty list"), ([Entropy()], "head_entropy is taken")],
)
def test_what_is_no_measure_is_refused_before_any_work(tiny, tmp_path, measures, message) -> None:
    with pytest.raises(UserError, match=message):
        analyze(tiny, corpus="grammar:80", measures=measures, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_has_no_column_value_is_told_of_and_not_drawn(tiny, tmp_path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    run = analyze(tiny, corpus="grammar:80", only="head_entropy", control=False, measures=path, out=tmp_path / "run")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Not drawn: the table odd (" in page


ODD = """
import pandas as pd
from infoflow.flow import Intervention
from infoflow.results import Column, TableSchema

class Odd(Intervention):
    table = TableSchema(
        name="odd", version=1, description="Odd.",
        columns=(Column(name="text", dtype="string", unit="", description="text"),),
    )

    def run(self, reader, options):
        return pd.DataFrame({"text": ["one"]})
"""
