"""Files are read as their tasks need them."""

import pytest

from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.probing import MINIMAL_PAIRS_TASK, check_task, load_task_corpus


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("1\tdogs\tdog\tNOUN\tNNS\tCase=Nom|Number=Plur\t0\troot\t_\tEntity=(e1)\n")
    return path


def test_treebanks_bring_the_features_and_mentions_that_are_asked_for(treebank):
    plain = Corpus.from_conllu(treebank).columns
    assert load_task_corpus(treebank, ["upos"]).columns == plain
    assert load_task_corpus(treebank, ["coreference"]).columns == plain | {"entity"}
    assert load_task_corpus(treebank, ["subject-number", "tense"]).columns == plain | {"number", "tense", "verbform"}
    corpus = load_task_corpus(treebank, ["Case"])
    assert corpus[0].tags["case"] == ["Nom"]
    check_task("Case", corpus)


def test_keys_of_misc_are_tags_like_any_other_column(tmp_path):
    path = tmp_path / "a.conllu"
    rows = [("Ann", "Case=Nom", "NER=B-PER|SpaceAfter=No"), ("Lee", "_", "NER=I-PER"), ("sleeps", "_", "_")]
    lines = [f"{n}\t{word}\t_\tX\t_\t{f}\t{min(n - 1, 1)}\tdep\t_\t{m}" for n, (word, f, m) in enumerate(rows, 1)]
    path.write_text("# text = Ann Lee sleeps\n" + "\n".join(lines) + "\n\n")
    for task in ("NER", "ner", "ner-spans", "NER-spans"):
        corpus = load_task_corpus(path, [task, "Case"])
        assert corpus[0].tags["ner"] == ["B-PER", "I-PER", "_"]
        assert corpus[0].tags["case"] == ["Nom", "_", "_"]
        check_task(task, corpus)
    with pytest.raises(UserError, match='No task "nix": neither one of the list nor a tag column'):
        check_task("nix", load_task_corpus(path, ["nix"]))


def test_a_key_of_both_fields_is_read_from_feats(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("1\tAnn\t_\tX\t_\tCase=Nom\t0\troot\t_\tCase=Dat\n\n")
    assert load_task_corpus(path, ["case"])[0].tags["case"] == ["Nom"]


@pytest.mark.parametrize("name", ["a.tsv", "a.tagged", "a.txt"])
def test_a_tag_names_the_column_of_a_tagged_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("Ann\tB-PER\nsleeps\tO\n")
    for task in ("ner", "ner-spans"):
        assert load_task_corpus(path, [task])[0].tags == {"ner": ["B-PER", "O"]}
    assert load_task_corpus(path, ["mine", "mine-spans"])[0].tags == {"mine": ["B-PER", "O"]}
    path.write_text("Ann\tX\tB-PER\n")
    assert load_task_corpus(path, ["ner"], tags=("xpos", "ner"))[0].tags == {"xpos": ["X"], "ner": ["B-PER"]}
    with pytest.raises(UserError, match="Name its columns in their order: --tags"):
        load_task_corpus(path, ["xpos", "ner"])


def test_labelled_sentences_and_minimal_pairs(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("good\ta film\n")
    assert load_task_corpus(path, ["sentence-label"])[0].label == "good"
    path.write_text("agreement\tdogs bark\tdogs barks\n")
    pairs = load_task_corpus(path, [MINIMAL_PAIRS_TASK])
    assert (pairs[0].text, pairs[0].bad, pairs[0].label) == ("dogs bark", "dogs barks", "agreement")
    blimp = tmp_path / "b.jsonl"
    blimp.write_text('{"sentence_good": "dogs bark", "sentence_bad": "dogs barks", "UID": "agreement"}\n')
    assert load_task_corpus(blimp, [MINIMAL_PAIRS_TASK])[0] == pairs[0]
    table = tmp_path / "c.csv"
    table.write_text("t,l\na film,1\n")
    assert load_task_corpus(table, ["sentence-label"], text_column="t", label_column="l")[0].label == "1"


def test_anything_else_is_read_as_ever(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a dog\na cat\n")
    assert load_task_corpus(path, ["length"]).columns == {"text"}
    (tmp_path / "labels").write_text("x\ny\n")
    assert [s.label for s in load_task_corpus(path, ["sentence-label"], labels=tmp_path / "labels")] == ["x", "y"]
    assert "ccg" in load_task_corpus("grammar:5", ["ccg"]).columns
    with pytest.raises(UserError, match="minimal-pairs needs pairs"):
        check_task(MINIMAL_PAIRS_TASK, load_task_corpus("grammar:5", ["ccg"]))
