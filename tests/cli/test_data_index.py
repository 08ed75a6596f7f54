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
    assert "--documents sets how its source is read, but own is already an index" in answer.err
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
        (["--retriever", "own"], "no retriever"),
    ):
        refused = infoflow("data", "index", "dense", *wrong, *ask)
        assert refused.code == 2
        assert told in refused.err


@pytest.fixture
def beir(tmp_path):
    """A folder with a benchmark whose names are no numbers."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    documents = ["ada lund lives in oslo", "ben roth is a baker", "cleo ruiz is a nurse"]
    rows = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(documents)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": "qa", "text": "who lives in oslo?"}, {"_id": "qb", "text": "a baker"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nqa\td0\t1\nqb\td2\t1\n")
    return folder


def test_trec_files_of_a_benchmark_have_its_names(infoflow, tmp_path, beir):
    from infoflow.retrieval import read_qrels, read_run

    files = ["--trec", "found.run", "--qrels", "found.qrels"]
    answer = infoflow("data", "index", "beir", "--out", "b", "--benchmark", "beir", *files)
    assert answer.code == 0, answer.err
    run = read_run(tmp_path / "found.run")
    assert {query: list(found) for query, found in run.items()} == {"qa": ["d0"], "qb": ["d1", "d2"]}
    assert read_qrels(tmp_path / "found.qrels") == {"qa": {"d0": 1}, "qb": {"d2": 1}}
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[:2] == [["b:", "3", "passages"], ["2", "questions"]]
    told = {line[0]: line[1] for line in lines[3:]}
    assert (told["hit@1"], told["mrr"]) == ("0.500", "0.750")  # the second is answered by the second passage
    assert infoflow("data", "index", "b", "--benchmark", "beir").out.startswith("2 questions\n")


def test_trec_files_of_own_questions_have_numbers(infoflow, tmp_path, built):
    assert infoflow("data", "index", "found", "--ask", "unicorn", "--ask", "oslo", "--trec", "own.run").code == 0
    line = (tmp_path / "own.run").read_text().split()
    assert [*line[:4], line[5]] == ["1", "Q0", "0", "1", "infoflow"]


def test_facts_are_a_benchmark_too(infoflow):
    answer = infoflow("data", "index", "facts:20", "--out", "facts", "--benchmark", "facts:20")
    assert answer.code == 0, answer.err
    assert "hit@1" in answer.out
    refused = infoflow("data", "index", "facts", "--benchmark", "facts:22")
    assert refused.code == 2
    assert "does not hold the passages" in refused.err


def test_shards_are_asked_together(infoflow, beir):
    for number in range(3):
        answer = infoflow("data", "index", "beir", "--out", f"s{number}", "--shard", f"{number}/3")
        assert answer.out == f"s{number}: 1 of 3 passages\n", answer.err
    infoflow("data", "index", "beir", "--out", "b")
    ask = ["--ask", "is a baker in oslo?"]
    assert infoflow("data", "index", "s2", "s0", "s1", *ask).out == infoflow("data", "index", "b", *ask).out
    assert infoflow("data", "index", "s0", "s1", "s2").out == "s0 s1 s2: 3 passages\n"
    tested = infoflow("data", "index", "s0", "s1", "s2", "--benchmark", "beir")
    assert tested.out == infoflow("data", "index", "b", "--benchmark", "beir").out
    refused = infoflow("data", "index", "s0", "s2", *ask)
    assert refused.code == 2
    assert "shards 0..2 once. Got 0, 2" in refused.err


def test_an_approximate_index_tells_its_recall(infoflow, tmp_path):
    pytest.importorskip("faiss")
    from infoflow.corpus import generate_facts
    from infoflow.retrieval import RetrieverConfig, build_retriever

    tokenizer = generate_facts().tokenizer(max_length=32)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RetrieverConfig(vocab_size=len(tokenizer), max_position_embeddings=32, vector_width=4, **shape)
    build_retriever(config, 0).save_pretrained(tmp_path / "r")
    tokenizer.save_pretrained(tmp_path / "r")
    answer = infoflow("data", "index", "facts:20", "--out", "near", "--retriever", "r", "--kind", "hnsw")
    assert answer.code == 0, answer.err
    about = json.loads((tmp_path / "near" / "index" / "index.json").read_text())
    assert (about["approximate"]["kind"], about["recall"]["queries"]) == ("hnsw", "questions")
    told = f"; recall@10 {about['recall']['recall']:.3f} against exact search, on 200 questions\n"
    assert answer.out.endswith(told)
    assert infoflow("data", "index", "near", "--retriever", "r").out == answer.out
    (tmp_path / "own.txt").write_text("ada lund\nben roth\n")
    answer = infoflow("data", "index", "own.txt", "--out", "few", "--retriever", "r", "--kind", "hnsw")
    assert answer.out == "few: 2 passages; recall@10 1.000 against exact search, on 2 passages\n"
    answer = infoflow("data", "index", "facts:20", "--out", "codes", "--retriever", "r", "--kind", "ivf")
    assert answer.code == 2
    assert "at least 9,984 passages" in answer.err
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize("name", ["passages/passages.arrow", "index/terms.json", "index/index.json"])
def test_a_damaged_index_is_refused(infoflow, built, name):
    path = built / name
    path.write_bytes(path.read_bytes()[:-3])
    refused = infoflow("data", "index", "found", "--ask", "ada")
    assert refused.code == 2
    assert "damaged" in refused.err
    assert refused.err.endswith("\nBuild the index again: infoflow data index CORPUS --out FOLDER.\n")
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "has no passages"),
        (["nowhere", "--out", "x"], "No corpus"),
        (["facts:x", "--out", "x"], "facts:256"),
        (["found", "--top", "0"], "--top"),
        (["found", "--top", "1.5"], "--top must be a whole number"),
        (["found", "--retriever", "r"], "--retriever"),
        ([], "a source to index"),
        (["found", "found"], "that are not shards"),
        (["found", "own.txt", "--out", "x"], "one source. Got 2"),
        (["found", "--kind", "hnsw"], "--kind sets how an index is built, but found is already an index"),
        (["found", "--shard", "0/2"], "--shard sets how an index is built"),
        (["own.txt", "--out", "x", "--kind", "hnsw"], "without a retriever the index is lexical (BM25). Got hnsw."),
        (
            ["own.txt", "--out", "x", "--kind", "exact"],
            "the index is lexical (BM25). Got exact.\nAdd --retriever FOLDER",
        ),
        (["own.txt", "--out", "x", "--shard", "2/2"], "0/4"),
        (["own.txt", "--out", "x", "--shard", "8/9"], "Use fewer shards"),
        (["found", "--trec", "x"], "--ask QUESTION or --benchmark"),
        (["found", "--ask", "a", "--qrels", "x"], "--benchmark FOLDER"),
        (["found", "--ask", "a", "--benchmark", "b"], "--ask and --benchmark cannot be combined"),
        (["found", "--benchmark", "nowhere"], "has no retrieval benchmark"),
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
    assert "its weights have different shapes from its config.json" in refused.err
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
