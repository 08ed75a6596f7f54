"""`data list | get | describe`."""


def test_list_names_the_built_in_corpora(infoflow):
    answer = infoflow("data", "list")
    assert answer.code == 0
    rows = {line.split()[0]: line for line in answer.out.splitlines()}
    assert "178,009" in rows["tatoeba-en-fr"]
    assert "ready" in rows["grammar"]


def test_get_and_describe(infoflow, tmp_path):
    assert infoflow("data", "get", "grammar:30").out == "grammar: 30 sentences\n"
    answer = infoflow("data", "describe", "grammar:30", "--log=plain")
    facts = dict(line.split(maxsplit=1) for line in answer.out.split("\n\n")[0].splitlines())
    assert facts["sentences"].startswith("30 ")
    assert "upos" in facts["columns"]
    (tmp_path / "own.txt").write_text("one two\nthree\n")
    assert "3 (3 distinct)" in infoflow("data", "describe", "own.txt").out


def test_without_a_network_the_message_names_the_generated_corpus(infoflow, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("INFOFLOW_CACHE", str(tmp_path / "cache"))
    answer = infoflow("data", "get", "tatoeba-en-fr")
    assert answer.code == 2
    assert "`grammar`" in answer.err


def test_terminal_escapes_of_a_corpus_do_not_reach_the_terminal(infoflow, tmp_path):
    (tmp_path / "evil.txt").write_text("a \x1b[31mred\x1b[0m word\n")
    assert "\x1b" not in infoflow("data", "describe", "evil.txt").out
