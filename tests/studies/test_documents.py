"""A study's corpus with documents: whole ones in its parts, windows and pairs of them."""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from infoflow.corpus import load_corpus
from infoflow.foundation import UserError, make_display, use_display
from infoflow.studies import CorpusPlan, StudyData, StudyPlan, prepare

NOUNS = [f"{start}{end}" for start in ("do", "ca", "bi", "hou", "ri") for end in ("g", "t", "rd", "se", "ver", "m")]


def write_text(path: Path, documents: int = 150, seed: int = 0) -> str:
    draw = random.Random(seed)

    def sentence() -> str:
        today = " today" * (draw.random() < 0.2)
        return (
            f"The {draw.choice(NOUNS)} of {draw.randint(1, 99)} {draw.choice(NOUNS)}s sees {draw.choice(NOUNS)}{today}."
        )

    blocks = [
        "\n".join(" ".join(sentence() for _ in range(draw.randint(1, 4))) for _ in range(draw.randint(1, 4)))
        for _ in range(documents)
    ]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return str(path)


def objectives(corpus: CorpusPlan) -> StudyPlan:
    return StudyPlan(objectives=("masked-lm",), corpus=corpus)


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> CorpusPlan:
    name = write_text(tmp_path_factory.mktemp("text") / "text.txt")
    shares = {"validation": 0.15, "test": 0.2}
    return CorpusPlan(name=name, documents=True, lines="paragraphs", vocabulary=150, **shares)


@pytest.fixture(scope="module")
def data(plan: CorpusPlan, tmp_path_factory) -> StudyData:
    return prepare(objectives(plan), tmp_path_factory.mktemp("work"))


def test_parts_share_no_document(plan: CorpusPlan, data: StudyData) -> None:
    whole = load_corpus(plan.name, documents=True, lines="paragraphs")
    sizes = np.bincount(whole.documents)
    parts = [set(part.documents.tolist()) for part in (data.train, data.validation, data.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    for part in (data.train, data.validation, data.test):
        found = np.bincount(part.documents, minlength=len(sizes))
        assert ((found == 0) | (found == sizes)).all()


def test_windows_and_pairs_of_a_part_hold_its_sentences_alone(data: StudyData) -> None:
    for part in (data.train, data.validation):
        encoded = part.encode(data.tokenizer)
        text = " ".join(map(str, encoded.flat_ids[~encoded.flat_special].tolist()))
        windows, pairs = data.windows(part, 64, 40), data.pairs(part, 64, "next", copies=2)
        assert windows.source.lengths.max() <= 40
        assert pairs.source.lengths.max() <= 64
        read = [windows.source.example(index).text[1:-1] for index in range(len(windows.source.lengths))]
        read += [tokens for index in range(len(pairs.source.lengths)) for tokens in pairs.source.example(index).texts]
        assert all(f" {' '.join(map(str, tokens.tolist()))} " in f" {text} " for tokens in read)
        assert windows.tokenizer is data.tokenizer
        assert windows.target is None


def test_windows_are_as_long_as_the_model_reads_unless_told(data: StudyData) -> None:
    whole, short = data.windows(data.train, 64), data.windows(data.train, 64, 20)
    assert 40 < whole.source.lengths.max() <= 64
    assert len(short.source.lengths) > 2 * len(whole.source.lengths)
    order = data.pairs(data.train, 64, "order", max_tokens=20, copies=1)
    assert order.source.lengths.max() <= 20
    assert set(order.source.example(0).labels) == {"is_swapped"}


def test_lengths_that_do_not_fit(data: StudyData) -> None:
    with pytest.raises(UserError, match=r"at most the model's positions, 64\. Got 65"):
        data.windows(data.train, 64, 65)
    with pytest.raises(UserError, match="Got 65"):
        data.pairs(data.train, 64, max_tokens=65)


def test_a_corpus_without_documents_is_refused_by_name(plan: CorpusPlan, tmp_path: Path) -> None:
    data = prepare(objectives(dataclasses.replace(plan, documents=False)), tmp_path)
    for read in (data.windows, data.pairs):
        with pytest.raises(UserError, match=r"needs documents.*text\.txt.*has none\.\n.*documents = true"):
            read(data.train, 64)


def test_a_limit_of_sentences_takes_whole_documents(plan: CorpusPlan, data: StudyData, tmp_path: Path) -> None:
    limited = prepare(objectives(dataclasses.replace(plan, sentences=100)), tmp_path)
    assert 80 < len(limited.train) <= 100
    sizes = np.bincount(data.train.documents)
    found = np.bincount(limited.train.documents, minlength=len(sizes))
    assert ((found == 0) | (found == sizes)).all()
    one = prepare(objectives(dataclasses.replace(plan, sentences=1)), tmp_path)
    assert len(one.train) == 1


def test_a_published_part_takes_whole_documents_from_training(plan: CorpusPlan, tmp_path: Path) -> None:
    blocks = Path(plan.name).read_text(encoding="utf-8").strip().split("\n\n")
    test = tmp_path / "test.txt"
    test.write_text("\n\n".join([blocks[3], blocks[8], "One more of its own."]), encoding="utf-8")
    data = prepare(objectives(dataclasses.replace(plan, test_name=str(test), test=0.0)), tmp_path)
    assert data.test.documents.max() == 2
    kept = set(data.train.documents.tolist()) | set(data.validation.documents.tolist())
    assert not kept & {3, 8}


def test_text_that_the_limits_on_words_break_is_told_of(plan: CorpusPlan, tmp_path: Path, capsys) -> None:
    with use_display(make_display("plain")):
        data = prepare(objectives(dataclasses.replace(plan, max_words=7)), tmp_path)
    assert "sentences are not of 1 to 7 words. Documents are interrupted there: raise corpus.max_words" in "".join(
        capsys.readouterr()
    )
    assert len(np.unique(data.train.stretches)) > len(np.unique(data.train.documents))


def test_how_documents_were_read_is_in_the_digest_and_in_no_key_of_a_plan_without(
    plan: CorpusPlan, data: StudyData, tmp_path: Path
) -> None:
    plain = prepare(objectives(dataclasses.replace(plan, documents=False)), tmp_path)
    assert plain.key != data.key
    assert prepare(objectives(plan), tmp_path).key == data.key
