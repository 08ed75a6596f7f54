"""`infoflow prune`, and commands on what it writes."""

from infoflow.models import load_model


def test_prunes_to_a_folder_that_analyze_reads(infoflow, masked_lm, small, tmp_path):
    answer = infoflow("prune", masked_lm, "--keep=3", "--corpus=grammar:60", "--sentences=40", "--out=small")
    assert answer.code == 0, answer.err
    assert "Heads left: encoder self 0:" in answer.out
    assert "speed-up" in answer.out
    pruned = load_model(tmp_path / "small")
    assert sum(one.num_heads for one in pruned.anatomy.attentions()) == 3
    answer = infoflow("analyze", "small", *small, "--only=head_confidence", "--out=run")
    assert answer.code == 0, answer.err


def test_too_many_heads_to_keep_is_the_users_mistake(infoflow, masked_lm):
    answer = infoflow("prune", masked_lm, "--keep=99", "--corpus=grammar:60", "--out=small")
    assert answer.code == 2
    assert "number of heads, 4" in answer.err
