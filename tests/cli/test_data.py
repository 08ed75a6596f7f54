"""`list corpora`, `data get | describe | show`."""

import re

import pytest

RULES = ("source", "near-duplicates")


def facts_in(out):
    """What `data describe` says, by fact; long values wrap."""
    lines = re.sub(r"\n +", " ", out.split("\n\n")[0]).splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


def test_list_names_the_built_in_corpora(infoflow):
    answer = infoflow("list", "corpora")
    assert answer.code == 0
    rows = {line.split()[0]: line for line in answer.out.splitlines()}
    assert "178,009" in rows["tatoeba-en-fr"]
    assert "(grammar:SIZE)" in answer.out, "long texts wrap; nothing is cut off"


def test_get_and_describe(infoflow, tmp_path):
    assert infoflow("data", "get", "grammar:30").out == "grammar: 30 sentences\n"
    answer = infoflow("data", "describe", "grammar:30", "--log=plain")
    facts = facts_in(answer.out)
    assert facts["sentences"].startswith("30 ")
    assert "upos" in facts["columns"]
    (tmp_path / "own.txt").write_text("one two\nthree\n")
    assert "3 (3 distinct)" in (short := infoflow("data", "describe", "own.txt").out)
    (tmp_path / "long.txt").write_text("\n".join(f"{word} of them sleep here. " * 20 for word in ("Two", "Ten")))
    long = infoflow("data", "describe", "long.txt").out
    assert ["--lines paragraphs splits" in out for out in (short, long)] == [False, True]


def test_describe_tells_of_documents(infoflow, tmp_path):
    (tmp_path / "own.txt").write_text("One. Two.\nThree.\n\nFour.\n")
    answer = infoflow("data", "describe", "own.txt", "--documents", "--lines", "paragraphs").out
    facts = facts_in(answer)
    assert facts["documents"] == "2 (2.0 sentences each on average)"
    assert "documents" not in infoflow("data", "describe", "own.txt").out.splitlines()[3]
    (tmp_path / "own.csv").write_text("said,book\none,x\ntwo,x\nthree,y\n")
    named = ["--text-column", "said", "--document-column", "book"]
    assert "2 (1.5 sentences" in infoflow("data", "describe", "own.csv", *named).out
    refused = infoflow("data", "get", "own.csv", "--text-column", "said", "--documents")
    assert refused.code == 2
    assert "--document-column NAME" in refused.err


def test_describe_says_what_leaks_by_source_and_by_default(infoflow, tmp_path):
    verbs = ["sees", "likes", "sings to", "listens to"]
    rows = [f"dog {n // 2} {verbs[n % 4]} cat {n // 2}\tphrase {n % 200}\n" for n in range(400)]
    (tmp_path / "own.tsv").write_text("".join(rows))
    facts = facts_in(infoflow("data", "describe", "own.tsv").out)
    source, default = (facts[f"split by {rule}"] for rule in RULES)
    assert ", 0 left out" in source
    assert "0.0% of test targets occur in training" not in source
    assert ", 0 left out" not in default
    for side in ("sources", "targets"):
        assert f"0.0% of test {side} occur in training, 0.0% with at most one word changed" in default


def test_terminal_escapes_of_a_corpus_do_not_reach_the_terminal(infoflow, tmp_path):
    (tmp_path / "evil.txt").write_text("a \x1b[31mred\x1b[0m word\n")
    assert "\x1b" not in infoflow("data", "describe", "evil.txt").out


def test_show_says_what_objectives_make_of_a_text(infoflow):
    answer = infoflow("data", "show", "Time flies.", "--objective", "causal-lm,masked-lm-nsp")
    assert answer.code == 0
    head, first, *lines = answer.out.splitlines()
    assert head.split() == ["objective", "inputs", "targets"]
    assert first.split() == ["causal-lm", "[CLS]", "Time", "flies", ".", "[SEP]", "Time", "flies", ".", "[SEP]", "·"]
    assert [line.split()[:2] for line in lines[1:]] == [["segments", "A"], ["positions", "0"]]
    tokens, segments = (line.index(mark) for line, mark in zip(lines, ("[CLS]", "A"), strict=False))
    assert tokens == segments  # segments and positions stand below their tokens
    assert lines[0].split()[0] == "masked-lm-nsp"
    assert "next-sentence" in lines[1]


def test_show_takes_a_translation_and_all_objectives(infoflow):
    every = infoflow("data", "show", "Time flies.", "--objective", "all").out
    names = [line.split()[0] for line in every.splitlines() if not line.startswith(" ")]
    assert "translation" not in names
    assert {"bart", "skip-gram", "electra", "read-gold"} <= set(names)
    translated = infoflow("data", "show", "Time flies.", "--translation", "Le temps passe.").out
    assert "Le temps passe . [SEP]" in translated


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["Time flies.", "--objective", "masked-ml"], "No objective is called masked-ml. Did you mean masked-lm?"),
        (["Time flies.", "--objective", "translation"], "Give it: --translation TEXT."),
        (["", "--objective", "bart"], "An argument must not be empty."),
        (["Time flies.", "--objective", ","], "--objective takes names separated by commas."),
    ],
)
def test_show_refuses_in_one_message(infoflow, arguments, told):
    answer = infoflow("data", "show", *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert told in answer.err
    assert "Traceback" not in answer.err


def test_show_lets_no_terminal_escapes_through(infoflow):
    assert "\x1b" not in infoflow("data", "show", "a \x1b[31mred\x1b[0m word").out
