"""Mentions from brackets; coreference heads against loops over single mentions."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.corpus import Corpus, load_corpus, tag_columns
from infoflow.heads import Coreference, read_mentions

CONLLU = """\
# text = John saw the old dog and it saw him near the other dog
1\tJohn\t_\tPROPN\t_\t_\t2\tnsubj\t_\tEntity=(e1-person)
2\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_
3\tthe\t_\tDET\t_\t_\t5\tdet\t_\tEntity=(e2-animal|SpaceAfter=Yes
4\told\t_\tADJ\t_\t_\t5\tamod\t_\t_
5\tdog\t_\tNOUN\t_\t_\t2\tobj\t_\tEntity=e2)
6\tand\t_\tCCONJ\t_\t_\t8\tcc\t_\t_
7\tit\t_\tPRON\t_\t_\t8\tnsubj\t_\tEntity=(e2-animal)
8\tsaw\t_\tVERB\t_\t_\t2\tconj\t_\t_
9\thim\t_\tPRON\t_\t_\t8\tobj\t_\tEntity=(e1-person)
10\tnear\t_\tADP\t_\t_\t13\tcase\t_\t_
11\tthe\t_\tDET\t_\t_\t13\tdet\t_\tEntity=(e2-animal
12\tother\t_\tADJ\t_\t_\t13\tamod\t_\t_
13\tdog\t_\tNOUN\t_\t_\t8\tobl\t_\tEntity=e2)

# text = it sleeps
1\tit\t_\tPRON\t_\t_\t2\tnsubj\t_\tEntity=(e2-animal)
2\tsleeps\t_\tVERB\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("coreference") / "two.conllu"
    path.write_text(CONLLU * 3)
    return Corpus.from_conllu(path, misc=("Entity",))


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    return tiny.reader_of(getattr(tiny, request.param)(corpus, size=50), corpus)


def test_brackets_and_head_words(corpus):
    sentence = corpus[0]
    mentions = read_mentions(sentence.tags["entity"], sentence.head, sentence.upos)
    assert [(m.entity, m.start, m.end, m.head, m.type) for m in mentions] == [
        ("e1", 0, 0, 0, "proper"),
        ("e2", 2, 4, 4, "nominal"),
        ("e2", 6, 6, 6, "pronoun"),
        ("e1", 8, 8, 8, "pronoun"),
        ("e2", 10, 12, 12, "nominal"),
    ]


def test_brackets_of_both_formats():
    nested = read_mentions(["(1", "(2)", "1)|(3", "-", "3)", "9)", "(8", "*"])
    assert [(m.entity, m.start, m.end, m.head) for m in nested] == [("2", 1, 1, 1), ("1", 0, 2, 2), ("3", 2, 4, 4)]
    joined = read_mentions(["(e1-person-1-x", "(e2-place[1/2])e1)", "_"])
    assert {(m.entity, m.start, m.end) for m in joined} == {("e1", 0, 1), ("e2", 1, 1)}
    assert all(m.type == "" for m in joined)
    assert {m.entity: m.kind for m in joined} == {"e1": "person", "e2": "place"}
    assert {m.kind for m in nested} == {""}


def by_definition(reader, candidates):
    hits, count = Counter(), Counter()
    for row in range(len(reader.corpus)):
        sentence = reader.corpus[row]
        mentions = read_mentions(sentence.tags["entity"], sentence.head, sentence.upos)
        given = tiny.batch_of(reader, np.array([row]))
        words = next(iter(given.streams.values())).words[0].tolist()
        tokens = [[t for t, w in enumerate(words) if w == word] for word in range(len(sentence.words))]
        for index, mention in enumerate(mentions):
            right = {one.head for one in mentions[:index] if one.entity == mention.entity}
            if not right:
                continue
            for kind in ("all", mention.type):
                count[kind] += 1
            others = [w for w in range(len(tokens)) if w != mention.head]
            if candidates == "mentions":
                others = sorted({m.head for m in mentions if m.head < mention.head})
            for layer, weights in enumerate(next(iter(given.attention.values()))):
                for head in range(weights.shape[1]):
                    mass = {w: float(weights[0, head][tokens[mention.head]][:, tokens[w]].sum()) for w in others}
                    if max(mass, key=mass.get) in right:
                        for kind in ("all", mention.type):
                            hits[layer, head, kind] += 1
    return hits, count


@pytest.mark.parametrize("candidates", ["words", "mentions"])
def test_agree_with_definition(reader, candidates):
    frame = tiny.run(Coreference(candidates=candidates), reader, [np.arange(len(reader.corpus))])
    hits, count = by_definition(reader, candidates)
    assert set(frame["mention"]) == set(count) == {"all", "pronoun", "nominal"}
    for r in frame.itertuples():
        assert r.count == count[r.mention]
        assert r.value == pytest.approx(hits[r.layer, r.head, r.mention] / r.count)
    every = frame[frame["mention"] == "all"].iloc[0]
    assert every["count"] == 9  # three in each copy of the first sentence; the second has no antecedent inside
    assert every["baseline"] == pytest.approx(1 / 3)  # `it`: the dog is nearest; `him`: the dog; the dog: him
    assert every["head_match"] == pytest.approx(1 / 3)


def test_padding_and_batches_change_nothing(reader):
    alone = tiny.run(Coreference(), reader, [np.array([row]) for row in range(6)])
    for left in (False, True):
        frame = tiny.run(Coreference(), reader, [np.arange(4), np.arange(4, 6)], left)
        for column in ("value", "low", "high", "baseline", "head_match", "count"):
            np.testing.assert_allclose(frame[column], alone[column])


def test_tagged_text_without_trees(tmp_path):
    path = tmp_path / "tagged.txt"
    path.write_text("Mary\t(1)\nsaw\t-\nher\t(1\ndog\t1)\n\n" * 4)
    corpus = Corpus.from_tagged(path, tags=("coref",))
    reader = tiny.reader_of(tiny.bert(corpus, size=60), corpus)
    frame = tiny.run(Coreference("coref"), reader, [np.arange(4)])
    assert set(frame["mention"]) == {"all"}
    assert frame["count"].eq(4).all()
    assert tiny.run(Coreference("entity"), reader, [np.arange(4)]).empty


def test_a_perfect_head(corpus):
    reader = tiny.reader_of(tiny.bert(corpus, size=50, heads=1, layers=1), corpus)
    given = tiny.batch_of(reader, np.arange(2))
    weights = torch.zeros_like(given.attention["encoder", "self"][0])
    words = given.streams["encoder"].words[0]
    for start, goal in ((6, 4), (8, 0), (12, 6)):
        weights[0, 0, torch.nonzero(words == start).ravel()[:, None], torch.nonzero(words == goal)[0]] = 1
    measure = Coreference()
    measure.prepare(reader)
    measure.update(replace(given, attention={("encoder", "self"): [weights]}))
    assert measure.result()["value"].eq(1).all()


def test_a_treebank_by_name_has_its_brackets(tmp_path, corpus):
    (tmp_path / "two.conllu").write_text(CONLLU * 3)
    (tmp_path / "none.conllu").write_text(re.sub(r"Entity=[^|\n]*", "_", CONLLU))
    named = load_corpus(tmp_path / "two.conllu")
    assert list(named.column("entity")) == list(corpus.column("entity"))
    assert "entity" not in load_corpus(tmp_path / "none.conllu").columns
    assert "entity" not in load_corpus(tmp_path / "two.conllu", misc=()).columns
    found = tiny.run(Coreference(), tiny.reader_of(tiny.bert(named, size=50), named), [np.arange(len(named))])
    assert set(found["mention"]) == {"all", "pronoun", "nominal"}


def test_brackets_are_no_tags_but_entities_may_be(tmp_path, corpus):
    assert tag_columns(corpus) == ["deprel", "upos", "xpos"]
    (tmp_path / "a.tagged").write_text("Ada\tB-person\nsleeps\tO\n")
    assert tag_columns(Corpus.from_tagged(tmp_path / "a.tagged", tags=("entity",))) == ["entity"]
