"""`probe`."""

import pytest

from .test_measuring import blocks_of, tables

pytestmark = pytest.mark.slow

OPTIONS = ("--corpus=grammar:150", "--log=plain", "--set=probing.sentences=100")


def test_probe_prints_each_task_beside_its_controls(infoflow, masked_lm, no_drawing, tmp_path):
    answer = infoflow("probe", masked_lm, "--task=upos,length", *OPTIONS, "--out=run")
    assert answer.code == 0, answer.err
    blocks = blocks_of(answer)
    (upos,) = [lines for title, lines in blocks.items() if title.startswith("upos: linear probe of the encoder")]
    assert upos[0].split()[:2] == ["layer", "accuracy"]
    assert [line.split()[0] for line in upos[1:]] == ["0", "1", "2"]
    scores = tables(tmp_path / "run")["probe_scores"]
    assert set(scores["task"]) == {"upos", "length"}
    assert set(scores["trained"]) == {True, False}
    own = scores[(scores["task"] == "upos") & scores["trained"] & (scores["labels"] == "task")]
    own = own[(own["words"] == "all") & (own["metric"] == "accuracy")].sort_values("layer")
    assert [line.split()[1] for line in upos[1:]] == [f"{value:.3f}" for value in own["value"]]
    assert (tmp_path / "run" / "report.html").exists()
    assert answer.out.splitlines()[-1] == "Report: run/report.html"


def test_every_probe_of_one_command(infoflow, masked_lm, no_drawing, tmp_path):
    probes = "--probe=linear,mlp,edge,online,variational,structural,attention"
    few = ("--corpus=grammar:60", "--log=plain", "--set=probing.sentences=24", "--no-control")
    answer = infoflow("probe", masked_lm, "--task=chunks", probes, *few, "--out=run")
    assert answer.code == 0, answer.err
    edges = {"probe_mixing", "probe_depth"}
    names = {"probe_scores", "probe_examples", *edges, "probe_codelength", "probe_trees", "head_probe"}
    assert set(tables(tmp_path / "run")) == {*names, "given_scores"}
    titles = "\n".join(blocks_of(answer))
    for title in ("chunks: linear", "chunks: mlp", "chunks: edge", "chunks: online", "chunks: variational"):
        assert title in titles
    assert "Structural probe of distance in the encoder: uuas" in titles
    assert "Depth of edge probes" in titles
    assert "Trees in the attention of the encoder" in titles
    only = infoflow("probe", masked_lm, "--task=chunks", probes, *few, "--only=probe_trees", "--out=o")
    assert only.code == 0, only.err
    assert set(tables(tmp_path / "o")) == {"probe_trees", "given_scores"}


def test_a_tagged_file_with_a_test_file(infoflow, masked_lm, no_drawing, tmp_path):
    def write(name, first, last):
        lines = (
            f"the\tO\ndog\tO\nsees\tO\n{'David' if n % 2 else 'Mary'}\tB-{'M' if n % 2 else 'F'}\nand\tO\nmen{n}\tO\n"
            for n in range(first, last)
        )
        (tmp_path / name).write_text("\n".join(lines))

    write("train.tsv", 0, 60)
    write("test.tsv", 60, 90)
    options = ("--corpus=train.tsv", "--test=test.tsv", "--log=plain", "--no-control", "--out=run")
    answer = infoflow("probe", masked_lm, "--task=ner-spans", *options)
    assert answer.code == 0, answer.err
    scores = tables(tmp_path / "run")["probe_scores"]
    own = scores[(scores["metric"] == "accuracy") & (scores["labels"] == "task") & (scores["words"] == "all")]
    assert (own["count"] == 30).all()
    assert (own["value"] == 1).all()


def test_labels_of_a_file(infoflow, masked_lm, no_drawing, tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"the {'dog' if n % 2 else 'man'} sees {n} men\n" for n in range(80)))
    (tmp_path / "labels.txt").write_text("".join(f"{'x' if n % 2 else 'y'}\n" for n in range(80)))
    options = ("--corpus=a.txt", "--labels=labels.txt", "--log=plain", "--no-control", "--out=run")
    answer = infoflow("probe", masked_lm, "--task=sentence-label", *options)
    assert answer.code == 0, answer.err
    assert set(tables(tmp_path / "run")["probe_scores"]["unit"]) == {"sentence"}
    (tmp_path / "labels.txt").write_text("x\ny\n")
    wrong = infoflow("probe", masked_lm, "--task=sentence-label", *options)
    assert wrong.code == 2
    assert "one label for each sentence of a.txt, 80. Got 2" in wrong.err


def test_minimal_pairs(infoflow, causal_lm, no_drawing, tmp_path):
    (tmp_path / "p.tsv").write_text("".join(f"s\tthe dog{n} sleeps\tthe dog{n} sleep\n" for n in range(20)))
    answer = infoflow("probe", causal_lm, "--task=minimal-pairs", "--corpus=p.tsv", "--log=plain", "--out=run")
    assert answer.code == 0, answer.err
    assert "Minimal pairs: 20, each layer through the logit lens" in answer.out
    found = tables(tmp_path / "run")["minimal_pairs"]
    assert set(found["phenomenon"]) == {"all", "s"}
    assert set(found.loc[found["metric"] == "preferred", "baseline"]) == {0.5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "No task was named.\n  upos"),
        (["--task=sintax"], 'No task "sintax"'),
        (["--task=coreference"], "The task coreference needs the column entity"),
        (["--task=upos", "--probe=foo"], "probing.probes must be among linear, mlp"),
        (["--task=upos", "--only=probe_trees"], "--only has no table probe_trees of these probes"),
        (["--task=upos,length", "--corpus=grammar:2"], "leaves none for the part"),
        (["--task=minimal-pairs"], "minimal-pairs needs pairs of an acceptable and another sentence"),
        (["--task=ner-spans", "--corpus=a.tsv", "--test=b.tsv"], "No corpus b.tsv"),
        (["--task=ner,upos", "--corpus=a.tsv"], "Name its columns in their order: --tags NAME,NAME"),
        (["--task=x", "--corpus=a.conllu"], "never reach a root"),
    ],
)
def test_mistakes_are_told_before_a_model_is_read(infoflow, options, message, tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"a{n}\tB-X\nb\tO\n\n" for n in range(9)))
    (tmp_path / "a.conllu").write_text("1\ta\t_\tX\t_\t_\t2\tx\t_\t_\n2\tb\t_\tX\t_\t_\t1\tx\t_\t_\n")
    corpus = [] if any(option.startswith("--corpus") for option in options) else ["--corpus=grammar:60"]
    answer = infoflow("probe", "no-such-model", *options, *corpus, "--log=plain")
    assert answer.code == 2
    assert message in answer.err
    assert "no-such-model" not in answer.err.replace("Loading no-such-model", "")
