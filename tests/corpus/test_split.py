"""No part of a corpus leaks into another, checked pair by pair."""

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infoflow.corpus import SPLIT_RULES, Corpus, describe_corpus, generate_grammar, leakage, repeated
from infoflow.corpus._split import check_rule
from infoflow.foundation import UserError, make_display, use_display

pytestmark = pytest.mark.slow


def normal(text):
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def words(text):
    kept = "".join(c for c in normal(text) if unicodedata.category(c)[0] != "P")
    return "".join(f" {c} " if c in HAN else c for c in kept).split()


def without_one(found, more):
    """What surrounds each word, and each two Chinese characters, of a sentence that is long enough."""
    places = [(i, 1) for i in range(len(found)) if len(found) >= 4 + more]
    places += [(i, 2) for i in range(len(found) - 1) if len(found) >= 6 + more and {*found[i : i + 2]} <= {*HAN}]
    return [(found[:i], found[i + size :]) for i, size in places]


def near(one, other):
    first, second = words(one), words(other)
    if not first or not second:
        return False
    substituted = any(around in without_one(second, 0) for around in without_one(first, 0))
    inserted = any(a + b == y for x, y in ((first, second), (second, first)) for a, b in without_one(x, 1))
    return first == second or substituted or inserted


def leaks(row, other, rule):
    """Why a pair may not stand in another part than `other`, by the rule; empty: it may."""
    if rule != "source" and len(row) > 1 and normal(row[1]) == normal(other[1]):
        return "equal target"
    if rule == "near-duplicates":
        if near(row[0], other[0]):
            return "near duplicate of a source"
        if len(row) > 1 and near(row[1], other[1]):
            return "near duplicate of a target"
    return ""


def slow_split(rows, source, rule):
    """What `split` by `rule` leaves of the parts of the split by source, and why it left out the rest."""
    kept, why = {"test": list(source.test)}, Counter()
    for part, held_out in (("validation", ["test"]), ("train", ["test", "validation"])):
        others = [rows[i] for name in held_out for i in kept[name]]
        kept[part] = []
        for i in getattr(source, part):
            reasons = [reason for other in others if (reason := leaks(rows[i], other, rule))]
            order = ("equal target", "near duplicate of a source", "near duplicate of a target")
            if reasons:
                why[part, min(reasons, key=order.index)] += 1
            else:
                kept[part].append(i)
    return kept, why


class Parts:
    def __init__(self, split):
        self.train, self.validation, self.test = (
            [] if part is None else part.ids.tolist() for part in (split.train, split.validation, split.test)
        )


def corpus_of(rows, folder, name="rows.tsv"):
    path = folder / name
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return Corpus.from_parallel(f"as-is:{path}") if len(rows[0]) > 1 else Corpus.from_text(f"as-is:{path}")


HAN = "我去北京上海看"
WORDS = ["a", "B", "b", "c.", "c", "d", "É", "e\u0301", "-", "我去", "看。", "北京", "上海"]
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
pairs = st.lists(st.tuples(sentences, sentences), min_size=12, max_size=40)
lines = st.lists(st.tuples(sentences), min_size=12, max_size=40)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.one_of(pairs, lines), seed=st.integers(0, 5))
@pytest.mark.parametrize("rule", SPLIT_RULES)
def test_parts_are_those_of_a_comparison_of_all_pairs(rows, seed, rule, tmp_path):
    corpus, shares = corpus_of(rows, tmp_path), {"seed": seed, "validation": 0.15, "test": 0.15}
    try:
        source, split = corpus.split(**shares, rule="source"), corpus.split(**shares, rule=rule)
    except UserError:
        return  # too few distinct sources for three parts
    kept, why = slow_split(rows, Parts(source), split.rule)
    for part in ("train", "validation", "test"):
        assert getattr(split, part).ids.tolist() == kept[part]
    assert {(part, reason): n for part, told in split.left_out.items() for reason, n in told.items()} == dict(why)
    assert sum(map(len, kept.values())) + why.total() == len(rows)  # nothing is lost silently
    for stricter in SPLIT_RULES[SPLIT_RULES.index(rule) : SPLIT_RULES.index(split.rule)]:
        kept, _ = slow_split(rows, Parts(source), stricter)
        assert any(len(kept[part]) < 0.5 * len(getattr(source, part)) for part in ("train", "validation"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=pairs, seed=st.integers(0, 5), order=st.randoms(use_true_random=False))
def test_parts_do_not_depend_on_the_order_of_lines(rows, seed, order, tmp_path):
    moved = rows[:]
    order.shuffle(moved)
    found = []
    for number, lines in enumerate((rows, moved)):
        corpus = corpus_of(lines, tmp_path, f"{number}.tsv")
        try:
            split = corpus.split(seed=seed, validation=0.15, test=0.15)
        except UserError:
            return
        chosen = (split.train, split.validation, split.test)
        found.append([Counter(lines[i] for i in part.ids) for part in chosen] + [split.left_out, split.rule])
    assert found[0] == found[1]


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(sentences, max_size=12), others=st.lists(sentences, max_size=12))
def test_repeated_texts_are_those_of_all_pairs(texts, others):
    distinct = {normal(text): text for text in texts}.values()
    equal = sum(any(normal(a) == normal(b) for b in others) for a in distinct)
    assert repeated(texts, lambda: others) == (
        len(distinct),
        equal,
        sum(any(near(a, b) for b in others) for a in distinct),
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("We saw the old dog.", "we saw the old cat!", True),  # one word substituted, punctuation not counted
        ("We saw the old dog.", "We saw the dog.", True),  # one word less
        ("We saw the old dog.", "Then we saw the old dog.", True),  # one word more, at the start
        ("We saw the old dog.", "We saw an old cat.", False),  # two substituted
        ("We saw the old dog.", "We the saw old dog.", False),  # two exchanged
        ("We saw the old dog.", "We saw dog.", False),  # two less
        ("We saw old dogs.", "We saw dogs.", False),  # the shorter has three words
        ("We saw dogs.", "We saw cats.", False),
        ("We saw dogs.", "We saw dogs!", True),  # short, and the same words
        ("Ｗe saw the ﬁne dog", "we saw the fine cafe\u0301", True),  # compatibility forms
        ("...", "!!!", False),  # no words at all
        ("我去北京看。", "我去北海看！", True),  # one character of five
        ("我去北京看看我", "我去上海看看我", True),  # two neighbouring characters of seven
        ("我去北京看看我", "我去看看我", True),  # two less
        ("我去北京看看我", "我看北京去看我", False),  # two that are no neighbours
        ("我去北京", "我去上海", False),  # two of four
    ],
)
def test_near_duplicates(one, other, expected):
    assert repeated([one], lambda: [other])[2] == repeated([other], lambda: [one])[2] == expected
    assert near(one, other) == expected


def test_long_batches_find_what_stands_in_another_batch(monkeypatch):
    monkeypatch.setattr("infoflow.corpus._documents._BATCH", 7)
    texts = [f"{n % 5} cats and {n % 11} dogs of {n % 7} sorts" + " today" * (n % 3 == 0) for n in range(60)]
    *_, found = repeated(texts[:30], lambda: texts[30:])
    distinct = {normal(text): text for text in texts[:30]}.values()
    assert found == sum(any(near(a, b) for b in texts[30:]) for a in distinct)
    assert 0 < found < len(distinct)


def test_the_default_split_keeps_most_of_a_generated_corpus():
    corpus = generate_grammar(3000)
    split, source = (corpus.split(validation=0.02, test=0.1, rule=rule) for rule in ("near-duplicates", "source"))
    assert split.rule == "near-duplicates"
    assert split.test.ids.tolist() == source.test.ids.tolist()
    assert 0.95 * len(source.train) < len(split.train) <= len(source.train)
    assert set(leakage(split.test, split.train).to_json().values()) == {0.0}


def test_a_corpus_of_near_duplicates_falls_back_to_a_weaker_rule_and_says_so(tmp_path: Path, capsys):
    rows = [(f"the cat sees {number} dogs", f"le chat {number}") for number in range(300)]
    with use_display(make_display("plain")):
        split = corpus_of(rows, tmp_path).split(validation=0.1, test=0.1)
    assert split.rule == "both-sides"
    assert sum(len(part) for part in (split.train, split.validation, split.test)) == 300
    assert 'is split by the rule "both-sides": "near-duplicates" would leave less than 50% of a part' in "".join(
        capsys.readouterr()
    )
    rows = [(source, "le chat") for source, _ in rows]
    split = corpus_of(rows, tmp_path).split(validation=0.1, test=0.1)
    assert (split.rule, split.left_out) == ("source", {})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held_out=st.one_of(pairs, lines), train=pairs)
def test_leaks_are_those_of_all_pairs(held_out, train, tmp_path):
    both = len(held_out[0]) > 1
    found = leakage(corpus_of(held_out, tmp_path, "held-out.tsv"), corpus_of(train, tmp_path, "train.tsv"))
    expected = {
        f"{prefix}{name}": sum(any(same(a[side], b[side]) for b in train) for a in held_out) / len(held_out)
        for prefix, same in (("", lambda a, b: normal(a) == normal(b)), ("near_", near))
        for side, name in enumerate(("sources", "targets"))
        if both or name == "sources"
    }
    assert found.to_json() == pytest.approx(expected)
    assert (found.targets is None) == (found.near_targets is None) == (not both)


def test_the_default_leaves_no_leak_and_the_split_by_source_does(tmp_path):
    verbs = ["sees", "likes", "sings to", "listens to"]
    rows = [(f"dog {n // 2} {verbs[n % 4]} cat {n // 2}", f"phrase {n % 200}") for n in range(400)]
    corpus = corpus_of(rows, tmp_path)
    described = {split.rule: split for split in describe_corpus(corpus).splits}
    assert list(described) == ["source", "near-duplicates"]
    for rule, split in described.items():
        parts = corpus.split(validation=0.02, test=0.1, rule=rule)
        assert (split.train, split.validation, split.test) == tuple(
            map(len, (parts.train, parts.validation, parts.test))
        )
        assert (split.used, split.left_out, split.leakage) == (rule, parts.left_out, leakage(parts.test, parts.train))
    assert min(described["source"].leakage.targets, described["source"].leakage.near_sources) > 0.2
    assert set(described["near-duplicates"].leakage.to_json().values()) == {0.0}
    assert sum(sum(why.values()) for why in described["near-duplicates"].left_out.values()) > 0


def test_an_unknown_rule_is_refused():
    with pytest.raises(UserError, match=r'must be among near-duplicates, both-sides, source\. Got "target"'):
        check_rule("target")
