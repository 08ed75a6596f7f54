"""`infoflow bert-score`, and what a probe tells of a model that was given."""

import numpy as np
import pytest

from infoflow.corpus import generate_grammar
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def pairs(tmp_path):
    texts = [sentence.text for sentence in generate_grammar(80)]
    draw = np.random.default_rng(0)
    lines = [f"{a}\t{b}\t{draw.normal():.3f}" for a, b in zip(texts[:40], texts[40:], strict=True)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_shows_every_layer_and_writes_tables_and_a_page(infoflow, masked_lm, causal_lm, pairs):
    answer = infoflow("bert-score", masked_lm, causal_lm, f"--pairs={pairs}", "--out=scored", "--log=plain")
    assert answer.code == 0, answer.err
    assert "40 pairs, BERTScore by layer" in answer.out
    assert "correlation with human scores" in answer.out
    run = RunFolder.existing("scored")
    layers = run.tables["bert_score_layers"]
    assert set(layers["layer"]) == {0, 1, 2}
    assert set(layers["trained"]) == {True, False}
    assert set(run.tables["bert_score"]["labels"]) == {"human", "permuted"}
    assert len(run.tables["bert_score_pairs"]) == 2 * 3 * 40
    assert run.tables["given_scores"]["value"].notna().all()
    assert 'id="bert-score"' in (run.path / "report.html").read_text()
    again = infoflow("findings", "scored", "--log=plain")
    assert again.code == 0, again.err
    found = run.tables["findings"].set_index("id").loc["probing:P-5"]
    assert set(found["model"]) == {"masked-lm/seed-0", "causal-lm/seed-0"}


def test_one_layer_rescaled_without_people(infoflow, masked_lm, pairs):
    options = ("--columns=1,2", "--layer=1", "--idf", "--rescale", "--no-control", "--baseline-pairs=30")
    answer = infoflow("bert-score", masked_lm, f"--pairs={pairs}", "--out=one", "--log=plain", *options)
    assert answer.code == 0, answer.err
    assert "F rescaled" in answer.out
    assert "There are no human scores" in answer.out
    table = RunFolder.existing("one").tables["bert_score_layers"]
    assert set(table["layer"]) == {1}
    assert set(table["baseline"]) == {0.0}
    assert table["rescaled"].all()
    assert table["idf"].all()


def test_mistakes_are_told(infoflow, masked_lm, pairs, tmp_path):
    (tmp_path / "bad.tsv").write_text("a\tb\tgood\n")
    for arguments, message in (
        ([masked_lm, "--pairs=absent.tsv"], "no file absent.tsv"),
        ([masked_lm, "--pairs=bad.tsv"], "must be a number"),
        ([f"--pairs={pairs}"], "needs a model"),
        ([masked_lm, masked_lm, f"--pairs={pairs}"], "must be distinct"),
        ([masked_lm, f"--pairs={pairs}", "--layer=9"], "0..2"),
        ([masked_lm, f"--pairs={pairs}", "--columns=9,1"], "has 3 columns"),
        ([masked_lm, f"--pairs={pairs}", "--baseline-pairs=0"], "--baseline-pairs"),
        (["absent", f"--pairs={pairs}"], "absent"),
    ):
        answer = infoflow("bert-score", *arguments, "--out=none", "--log=plain")
        assert answer.code == 2, (arguments, answer.out, answer.err)
        assert message in answer.err
        assert "Traceback" not in answer.err


def test_claims_are_judged_on_a_probed_model(infoflow, masked_lm):
    run = ("--corpus=grammar:120", "--task=upos", "--set=probing.seeds=1", "--out=probed", "--log=plain")
    answer = infoflow("probe", masked_lm, *run)
    assert answer.code == 0, answer.err
    scores = RunFolder.existing("probed").tables["given_scores"]
    assert list(scores["trained"]) == [True, False]
    assert (scores["baseline"] > 0).all()
    assert infoflow("findings", "probed", "--log=plain").code == 0
    row = RunFolder.existing("probed").tables["findings"].set_index("id").loc["probing:P-1"]
    assert row["model"] == "masked-lm/seed-0"
    assert np.isfinite(row["effect"])
    assert "judged on masked-lm/seed-0, an external model" in row["note"]
