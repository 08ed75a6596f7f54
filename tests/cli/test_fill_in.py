"""`infoflow fill-in`."""

import pytest

from infoflow.corpus import generate_grammar
from infoflow.models import load_model
from infoflow.probing import common_objects
from infoflow.results import RunFolder


@pytest.fixture
def facts(tmp_path, masked_lm):
    """About words of the generated grammar that are one token."""
    words = sorted({word for sentence in generate_grammar(200) for word in sentence.text.split()})
    known = common_objects([load_model(masked_lm)], words)[:4]
    lines = [f"is\tthe\t{word}\t[X] or [Y] ." for word in known]
    path = tmp_path / "facts.tsv"
    path.write_text("\n".join(["relation\tsubject\tobject\ttemplate", *lines]) + "\n")
    return path


def test_shows_the_layers_and_writes_a_table(infoflow, masked_lm, causal_lm, facts):
    answer = infoflow("fill-in", masked_lm, causal_lm, f"--facts={facts}", "--out=blanks", "--log=plain")
    assert answer.code == 0, answer.err
    assert "P@1 by layer" in answer.out
    table = RunFolder.existing("blanks").tables["fill_in"]
    assert set(table["model"]) == {"masked-lm/seed-0", "causal-lm/seed-0"}  # as much of the path as tells them apart
    assert set(table["layer"]) == {0, 1, 2}


def test_mistakes_are_told(infoflow, masked_lm, facts, tmp_path):
    (tmp_path / "none.tsv").write_text("is\tthe\ta\n")
    for arguments, message in (
        ([masked_lm, "--facts=absent.tsv"], "no file absent.tsv"),
        ([masked_lm, "--facts=none.tsv"], "No fact has a template"),
        ([f"--facts={facts}"], "needs a model"),
        ([masked_lm, masked_lm, f"--facts={facts}"], "must be distinct"),
        ([masked_lm, f"--facts={facts}", "--prompts=mined"], "family mined"),
        ([masked_lm, f"--facts={facts}", "--lens=absent"], "No tuned lens"),
    ):
        answer = infoflow("fill-in", *arguments)
        assert answer.code == 2
        assert message in answer.err
