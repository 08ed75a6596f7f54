"""A corpus of one sentence, or of one word: every measure gives its table or is left out with a reason."""

import pytest

from infoflow.studies import AnalyzeOptions, analyze

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folders(matched_models, tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    for name, model in matched_models.items():
        model.module.save_pretrained(base / name)
        model.tokenizer.save_pretrained(base / name)
    return base


@pytest.mark.filterwarnings("ignore::UserWarning")  # measures say that so few tokens make them biased
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("masked-lm", "the old cat sees the dog\n"),
        ("causal-lm", "the old cat sees the dog\n"),
        ("translation", "the old cat sees the dog\tle chat vieux voit le chien\n"),
        ("causal-lm", "cat\n"),
        ("masked-lm", "cat\n"),
    ],
)
def test_every_measure_says_something_or_why_not(folders, tmp_path, no_drawing, name, text):
    corpus = tmp_path / ("one.tsv" if "\t" in text else "one.txt")
    corpus.write_text(text)
    run = analyze([str(folders / name)], AnalyzeOptions(corpus=str(corpus)), tmp_path / "run")
    assert [f"{failure.table}: {failure.reason}" for failure in run.failures] == []
    assert len(run.tables["head_confidence"])
    assert (run.path / "report.html").exists()
