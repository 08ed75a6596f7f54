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


def test_a_share_of_the_heads_may_be_kept(infoflow, masked_lm, tmp_path):
    command = ["prune", masked_lm, "--keep=50%", "--corpus=grammar:60", "--sentences=40", "--out=small"]
    answer = infoflow(*command, "--masked=zeros")
    assert answer.code == 0, answer.err
    assert sum(one.num_heads for one in load_model(tmp_path / "small").anatomy.attentions()) == 2
    assert "Masked model: zeros" in answer.out
    assert sum(one.num_heads for one in load_model(tmp_path / "zeros").anatomy.attentions()) == 4
    refused = infoflow("prune", masked_lm, "--keep=150%", "--corpus=grammar:60", "--out=small")
    assert refused.err.startswith('--keep must be a whole number, or a share of at most 100%. Got "150%".')


def test_several_numbers_are_a_row_and_a_folder_each(infoflow, masked_lm, tmp_path):
    command = ["prune", masked_lm, "--corpus=grammar:60", "--sentences=40", "--out=small"]
    answer = infoflow(*command, "--keep=3,25%")
    assert answer.code == 0, answer.err
    head, *rows, folders, report = answer.out.splitlines()[-5:]
    assert head.split()[:4] == ["heads", "loss", "(change)", "loss,"]
    assert [row.split()[0] for row in rows] == ["3", "1"]
    assert [folders, report] == ["Pruned models: small/keep-HEADS", "Report: small/report.html"]
    assert answer.err.splitlines()[0] == f"Loading {masked_lm}"
    ended = [line for line in answer.err.splitlines() if ": 100 %" in line]
    assert [line.partition(":")[0] for line in ended] == ["Pruning masked-lm/seed-0"], "one job, which ends once"
    for number in (3, 1):
        pruned = load_model(tmp_path / "small" / f"keep-{number}")
        assert sum(one.num_heads for one in pruned.anatomy.attentions()) == number
    refused = infoflow(*command, "--keep=3,")
    assert refused.err.startswith("--keep must be a whole number")
