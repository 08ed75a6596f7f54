"""`data index`: build, look up, and what is told when it cannot."""

import json

import pytest

pytest.importorskip("bm25s")


@pytest.fixture
def built(infoflow, tmp_path):
    (tmp_path / "own.txt").write_text("ada lund lives in oslo\nben roth is a baker\n\nben roth is a baker\n")
    answer = infoflow("data", "index", "own.txt", "--out", "found")
    assert answer.code == 0, answer.err
    assert answer.out == "found: 3 passages, 1 repeated\n"
    return tmp_path / "found"


def test_build_and_look_up(infoflow, built):
    answer = infoflow("data", "index", "found", "--ask", "Where does Ada live?", "--ask", "unicorn", "--top", "1")
    assert answer.code == 0
    assert "ada lund lives in oslo" in answer.out
    assert "baker" not in answer.out
    assert "unicorn: no passage shares a word with it" in answer.out
    assert infoflow("data", "index", "found").out == "found: 3 passages, 1 repeated\n"


def test_facts_and_benchmarks_are_indexed(infoflow, tmp_path):
    answer = infoflow("data", "index", "facts:20", "--out", "facts", "--ask", "the birthplace of ada lund")
    assert answer.code == 0
    assert answer.out.startswith("facts: ")
    (tmp_path / "beir").mkdir()
    (tmp_path / "beir" / "corpus.jsonl").write_text(json.dumps({"_id": "x", "title": "T", "text": "a line"}) + "\n")
    (tmp_path / "beir" / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "line?"}) + "\n")
    (tmp_path / "beir" / "qrels").mkdir()
    (tmp_path / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tx\t1\n")
    answer = infoflow("data", "index", "beir", "--out", "b", "--ask", "line")
    assert "T: a line" in answer.out


def test_documents_become_passages(infoflow, tmp_path):
    documents = [["one two", "three"], ["four"]]
    lines = []
    for document in documents:
        lines.append("# newdoc")
        for sentence in document:
            rows = [
                f"{place}\t{word}" + "\t_" * 4 + "\t0\troot\t_\t_"
                for place, word in enumerate(sentence.split(), start=1)
            ]
            lines += [f"# text = {sentence}", *rows, ""]
    (tmp_path / "own.conllu").write_text("\n".join(lines) + "\n")
    (tmp_path / "own.txt").write_text("one two\nthree\n\nfour\n")
    for source in ("own.conllu", "own.txt"):
        answer = infoflow("data", "index", source, "--documents", "--out", "own", "--ask", "three")
        assert answer.out.startswith("own: 2 passages"), answer.err
        assert "one two three" in answer.out
        assert infoflow("data", "index", source, "--out", "own").out == "own: 3 passages\n"
    answer = infoflow("data", "index", "own", "--documents")
    assert answer.code == 2
    assert "--documents says what an index is built of, and own is built" in answer.err
    (tmp_path / "own.csv").write_text("said,book\none two,x\nthree,x\nfour,y\n")
    answer = infoflow("data", "index", "own.csv", "--out", "table")
    assert "Write --text-column NAME" in answer.err
    answer = infoflow("data", "index", "own.csv", "--text-column", "said", "--out", "table")
    assert answer.out == "table: 3 passages\n"
    answer = infoflow("data", "index", "own.csv", "--text-column=said", "--document-column=book", "--out", "table")
    assert answer.out == "table: 2 passages\n"
    assert infoflow("data", "index", "grammar:20", "--documents", "--out", "no").code == 2
    assert not (tmp_path / "no").exists()


def test_a_dense_index_needs_its_retriever(infoflow, tmp_path):
    from infoflow.corpus import generate_facts
    from infoflow.retrieval import RetrieverConfig, build_retriever

    tokenizer = generate_facts().tokenizer(max_length=32)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RetrieverConfig(vocab_size=len(tokenizer), max_position_embeddings=32, vector_width=4, **shape)
    for seed in (0, 1):
        build_retriever(config, seed).save_pretrained(tmp_path / f"r{seed}")
        tokenizer.save_pretrained(tmp_path / f"r{seed}")
    ask = ["--ask", "the birthplace of ada lund", "--top", "2"]
    answer = infoflow("data", "index", "facts:20", "--out", "dense", "--retriever", "r0", *ask)
    assert answer.code == 0, answer.err
    again = infoflow("data", "index", "dense", "--retriever", "r0", *ask)
    assert answer.out.split("\n", 1)[1] == again.out
    for wrong, told in (
        ([], "--retriever"),
        (["--retriever", "r1"], "digest"),
        (["--retriever", "own"], "No retriever"),
    ):
        refused = infoflow("data", "index", "dense", *wrong, *ask)
        assert refused.code == 2
        assert told in refused.err


@pytest.mark.parametrize("name", ["passages/passages.arrow", "index/terms.json", "index/index.json"])
def test_a_damaged_index_is_refused(infoflow, built, name):
    path = built / name
    path.write_bytes(path.read_bytes()[:-3])
    refused = infoflow("data", "index", "found", "--ask", "ada")
    assert refused.code == 2
    assert "damaged" in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "holds no passages"),
        (["nowhere", "--out", "x"], "No corpus"),
        (["facts:x", "--out", "x"], "facts:256"),
        (["found", "--top", "0"], "--top"),
        (["found", "--top", "1.5"], "--top must be a whole number"),
        (["found", "--retriever", "r"], "--retriever"),
    ],
)
def test_mistakes_are_told(infoflow, built, arguments, told):
    answer = infoflow("data", "index", *arguments)
    assert answer.code == 2
    assert told in answer.err


@pytest.mark.parametrize("source", ["nowhere", "facts:0", "empty.txt"])
def test_a_refused_index_leaves_no_folder(infoflow, tmp_path, source):
    (tmp_path / "empty.txt").write_text("\n")
    assert infoflow("data", "index", source, "--out", "a/b/index").code == 2
    assert not (tmp_path / "a").exists()


def test_a_refused_index_leaves_what_was_there(infoflow, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.txt").write_text("x")
    assert infoflow("data", "index", "nowhere", "--out", "sub").code == 2
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["mine.txt"]


def test_a_damaged_retriever_gets_one_message(infoflow, tmp_path):
    from infoflow.corpus import generate_facts
    from infoflow.retrieval import RetrieverConfig, build_retriever

    tokenizer = generate_facts().tokenizer(max_length=32)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RetrieverConfig(vocab_size=len(tokenizer), max_position_embeddings=32, vector_width=4, **shape)
    build_retriever(config, 0).save_pretrained(tmp_path / "r")
    tokenizer.save_pretrained(tmp_path / "r")
    written = json.loads((tmp_path / "r" / "config.json").read_text())
    (tmp_path / "r" / "config.json").write_text(json.dumps(written | {"hidden_size": 16}))
    refused = infoflow("data", "index", "facts:20", "--out", "dense", "--retriever", "r")
    assert refused.code == 2
    assert "its weights have other shapes than its config.json says" in refused.err
    assert "LOAD REPORT" not in refused.err
    assert not (tmp_path / "dense").exists()
    (tmp_path / "r" / "config.json").write_text(json.dumps(written))
    (tmp_path / "r" / "tokenizer_config.json").unlink()
    refused = infoflow("data", "index", "facts:20", "--out", "dense", "--retriever", "r")
    assert refused.code == 2
    assert "no padding token" in refused.err


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("index/index.json", "store", True),
        ("index/index.json", "count", "3"),
        ("index/index.json", "kind", "dense"),
        ("passages/passages.json", "empty", "x"),
        ("passages/passages.json", "digest", None),
    ],
)
def test_a_changed_field_is_damage(infoflow, built, name, field, value):
    path = built / name
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    refused = infoflow("data", "index", "found", "--ask", "ada")
    assert refused.code == 2
    assert "damaged" in refused.err or "made from other passages" in refused.err or "dense" in refused.err
    assert "True" not in refused.err
