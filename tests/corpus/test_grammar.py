from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from infoflow.corpus import GrammarConfig, GrammarRates, generate_grammar
from infoflow.corpus import _grammar as target
from infoflow.corpus._grammar_lexicon import make_lexicon
from infoflow.foundation import UserError

SENTENCES = 1500


@pytest.fixture(scope="module")
def corpus():
    return generate_grammar(SENTENCES, seed=7)


@pytest.fixture(scope="module")
def sentences(corpus):
    return list(corpus)


# -- the supertags derive S --------------------------------------------------------------------------------------------
# A category is a string or (result, slash, argument).


@cache
def parse(category):
    depth = 0
    for i in range(len(category) - 1, -1, -1):
        depth += (category[i] == ")") - (category[i] == "(")
        if depth == 0 and category[i] in "\\/":
            return parse(category[:i]), category[i], parse(category[i + 1 :])
    return parse(category[1:-1]) if category.startswith("(") else category


RAISED = ("S", "/", ("S", "\\", "NP"))


@cache
def combine(left, right):
    results = set()
    if isinstance(left, tuple) and left[1] == "/":
        if left[2] == right:
            results.add(left[0])  # X/Y Y → X
        if isinstance(right, tuple) and right[1] == "/" and left[2] == right[0]:
            results.add((left[0], "/", right[2]))  # X/Y Y/Z → X/Z
    if isinstance(right, tuple) and right[1] == "\\":
        if right[2] == left:
            results.add(right[0])  # Y X\Y → X
        if isinstance(left, tuple) and left[1] == "\\" and right[2] == left[0]:
            results.add((right[0], "\\", left[2]))  # Y\Z X\Y → X\Z
    return frozenset(unary for result in results for unary in closure(result))


@cache
def closure(category):
    """The category, a noun as a bare plural noun phrase, and a noun phrase as a raised subject."""
    if category == "N":
        return frozenset({"N", *closure("NP")})
    return frozenset({category, RAISED}) if category == "NP" else frozenset({category})


def derivable(tags):
    """CKY: every category that spans the whole sentence."""
    n = len(tags)
    chart = {(i, i + 1): closure(parse(tag)) for i, tag in enumerate(tags)}
    for width in range(2, n + 1):
        for i in range(n - width + 1):
            chart[i, i + width] = frozenset(
                result
                for k in range(i + 1, i + width)
                for left in chart[i, k]
                for right in chart[k, i + width]
                for result in combine(left, right)
            )
    return chart[0, n]


def test_the_supertags_of_a_sentence_derive_s(sentences):
    for sentence in sentences[:250]:
        assert "S" in derivable(sentence.tags["ccg"]), sentence


def test_the_parser_of_this_test_can_refuse(sentences):
    refused = sum("S" not in derivable(sentence.tags["ccg"][::-1]) for sentence in sentences[:20])
    assert refused == 20


# -- the dependency tree -----------------------------------------------------------------------------------------------


def test_heads_form_one_tree_and_it_is_projective(sentences):
    for sentence in sentences:
        heads = sentence.head
        assert heads.count(-1) == 1
        for word in range(len(heads)):
            steps, node = 0, word
            while node != -1:
                node, steps = heads[node], steps + 1
                assert steps <= len(heads)
        arcs = [(min(w, h), max(w, h)) for w, h in enumerate(heads) if h != -1]
        assert not any(a < c < b < d for a, b in arcs for c, d in arcs)


EXPECTED_UPOS = {
    "det": {"DET"}, "amod": {"ADJ"}, "case": {"ADP"}, "cc": {"CCONJ"}, "punct": {"PUNCT"}, "advmod": {"ADV"},
    "nsubj": {"NOUN", "PROPN", "PRON"}, "obj": {"NOUN", "PROPN", "PRON"}, "nmod": {"NOUN", "PROPN"},
    "obl": {"NOUN", "PROPN"}, "acl:relcl": {"VERB"}, "root": {"VERB"}, "conj": {"NOUN", "PROPN", "VERB"},
}  # fmt: skip
EXPECTED_HEAD = {
    "det": {"NOUN"}, "amod": {"NOUN"}, "case": {"NOUN", "PROPN"}, "advmod": {"VERB", "ADJ"}, "nsubj": {"VERB"},
    "obj": {"VERB"}, "nmod": {"NOUN", "PROPN"}, "obl": {"VERB"}, "acl:relcl": {"NOUN"},
}  # fmt: skip


def test_relations_join_the_right_parts_of_speech(sentences):
    seen = set()
    for sentence in sentences:
        lists = (sentence.words, sentence.upos, sentence.head, sentence.deprel, *sentence.tags.values())
        assert len({len(column) for column in lists}) == 1
        for upos, head, deprel in zip(sentence.upos, sentence.head, sentence.deprel, strict=True):
            seen.add(deprel)
            assert upos in EXPECTED_UPOS[deprel]
            assert deprel not in EXPECTED_HEAD or sentence.upos[head] in EXPECTED_HEAD[deprel]
    assert seen == set(EXPECTED_UPOS)


def _numbers():
    lexicon = make_lexicon(1000)
    verbs = (*lexicon["transitive"], *lexicon["intransitive"])
    tables = {"NOUN": lexicon["noun"], "VERB": verbs, "PROPN": lexicon["name"]}
    return {
        tag: {form: number for e in entries for form, number in ((e.plural, "plural"), (e.singular, "singular"))}
        for tag, entries in tables.items()
    }


NUMBERS = _numbers()


def test_verbs_agree_with_their_subject_whatever_lies_between(sentences):
    distances = []
    for sentence in sentences:
        for word, (head, deprel) in enumerate(zip(sentence.head, sentence.deprel, strict=True)):
            if deprel != "nsubj":
                continue
            subject = sentence.head[head] if sentence.upos[word] == "PRON" else word
            coordinated = sentence.upos[word] != "PRON" and any(
                h == subject and d == "conj" for h, d in zip(sentence.head, sentence.deprel, strict=True)
            )
            expected = "plural" if coordinated else NUMBERS[sentence.upos[subject]][sentence.words[subject]]
            assert NUMBERS["VERB"][sentence.words[head]] == expected, sentence
            distances.append(abs(head - subject))
    assert max(distances) > 8


def test_determiners_fit_their_noun(sentences):
    for sentence in sentences:
        for i, word in enumerate(sentence.words):
            if word in ("a", "an"):
                assert NUMBERS["NOUN"][sentence.words[sentence.head[i]]] == "singular"
                assert (word == "an") == (sentence.words[i + 1][0] in "aeiou")


# -- the translation ---------------------------------------------------------------------------------------------------


def _inverse():
    """Target form → source lemma. Building it proves that no two lemmas share a form."""
    lexicon, table = make_lexicon(1000), {}

    def add(form, lemma):
        assert table.setdefault(form, lemma) == lemma, (form, lemma, table[form])

    for entry in lexicon["noun"]:
        add(entry.target, ("NOUN", entry.lemma))
        add(entry.target + target.NOUN_PLURAL, ("NOUN", entry.lemma))
    for entry in (*lexicon["transitive"], *lexicon["intransitive"]):
        for ending in target.VERB_ENDINGS:
            add(entry.target + ending, ("VERB", entry.lemma))
    for entry in lexicon["adjective"]:
        for ending in target.ADJECTIVE_ENDINGS:
            add(entry.target + ending, ("ADJ", entry.lemma))
    for word_class, ending in (("frequency", "im"), ("manner", "im"), ("degree", "um")):
        for entry in lexicon[word_class]:
            add(entry.target + ending, ("ADV", entry.lemma))
    for entry in lexicon["preposition"]:
        add(entry.target, ("ADP", entry.lemma))
    for entry in lexicon["name"]:
        add(entry.target, ("PROPN", entry.lemma))
    for forms, lemma in ((target.THE, "the"), (target.A[:2], "a")):
        for form in forms:
            add(form, ("DET", lemma))
    for form in (*target.SUBJECT_THAT, *target.OBJECT_THAT):
        add(form, ("PRON", "that"))
    for source, form in target.CONJUNCTIONS.items():
        add(form, ("CCONJ", source))
    add(".", ("PUNCT", "."))
    return table


def _lemmas():
    lexicon = make_lexicon(1000)
    verbs = (*lexicon["transitive"], *lexicon["intransitive"])
    return {
        tag: {form: entry.lemma for entry in entries for form in (entry.singular, entry.plural)}
        for tag, entries in (("NOUN", lexicon["noun"]), ("VERB", verbs))
    }


def test_the_translation_gives_back_the_source_lemmas(sentences):
    inverse, lemmas = _inverse(), _lemmas()
    for sentence in sentences:
        source = Counter(
            (upos, "a" if word == "an" else lemmas.get(upos, {}).get(word, word))
            for upos, word in zip(sentence.upos, sentence.words, strict=True)
        )
        assert Counter(inverse[word] for word in sentence.translation.split()) == source


def test_a_source_sentence_has_one_translation():
    plain = GrammarRates(adjective=0.05, name=0.02, manner=0.05, frequency=0.05, indefinite=0.05)
    corpus = generate_grammar(2500, seed=1, config=GrammarConfig(vocabulary=100, exponent=5.0, rates=plain))
    translations = {}
    for text, translation in zip(corpus.column("text"), corpus.column("translation"), strict=True):
        assert translations.setdefault(text, translation) == translation
    assert len(translations) < 2000  # many were met twice


def test_verb_is_final_adjective_follows_and_gender_comes_from_the_lexicon():
    plain = replace(
        GrammarRates(), name=0, place=0, relative=0, frequency=0, manner=0, degree=0, transitive=1, adjective=0.9
    )
    bare = replace(plain, noun_coordination=0, verb_coordination=0, clause_coordination=0, indefinite=0, plural=0)
    genders = {entry.lemma: entry.feminine for entry in make_lexicon(1000)["noun"]}
    for sentence in generate_grammar(200, config=GrammarConfig(rates=bare)):
        words = sentence.translation.split()
        subject = next(w for w, d in zip(sentence.words, sentence.deprel, strict=True) if d == "nsubj")
        adjectives = sentence.deprel[: sentence.deprel.index("nsubj")].count("amod")
        assert words[-1] == "."
        assert words[-2].endswith("ath" if genders[subject] else "eth")
        assert words[0] == ("la" if genders[subject] else "lo")
        assert all(word.endswith("a" if genders[subject] else "o") for word in words[2 : 2 + adjectives])


def test_half_the_nouns_are_feminine_and_the_source_does_not_show_it():
    nouns = make_lexicon(2000)["noun"]
    feminine = np.array([entry.feminine for entry in nouns])
    assert 0.45 < feminine.mean() < 0.55
    ends = Counter((entry.lemma[-1], entry.feminine) for entry in nouns)
    by_ending = [ends[letter, True] / (ends[letter, True] + ends[letter, False]) for letter, _ in ends]
    assert np.median(by_ending) == pytest.approx(0.5, abs=0.1)


# -- the vocabulary ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_nouns_follow_zipfs_law(exponent):
    corpus = generate_grammar(1500, seed=5, config=GrammarConfig(exponent=exponent))
    lemmas = _lemmas()["NOUN"]
    counts = Counter(lemmas[word] for s in corpus for word, upos in zip(s.words, s.upos, strict=True) if upos == "NOUN")
    ranked = [counts[entry.lemma] for entry in make_lexicon(1000)["noun"]]
    top = np.arange(1, 41)
    slope = np.polyfit(np.log(top), np.log(np.array(ranked[:40])), 1, w=np.sqrt(ranked[:40]))[0]
    assert -slope == pytest.approx(exponent, abs=0.1)


def test_a_larger_vocabulary_only_adds_words():
    small, large = make_lexicon(400), make_lexicon(3000)
    for word_class, entries in small.items():
        assert [e.lemma for e in large[word_class][: len(entries)]] == [e.lemma for e in entries]
        assert [e.feminine for e in large[word_class][: len(entries)]] == [e.feminine for e in entries]


def test_some_words_are_noun_and_verb(sentences):
    tags = {}
    for sentence in sentences:
        for word, upos in zip(sentence.words, sentence.upos, strict=True):
            tags.setdefault(word, set()).add(upos)
    assert sum(found == {"NOUN", "VERB"} for found in tags.values()) >= 10


# -- determinism and size ----------------------------------------------------------------------------------------------


def test_sentence_i_is_a_function_of_the_seed_and_i(corpus):
    part = generate_grammar(600, seed=7)  # other hash chunks than 1,500
    assert [s.text for s in part] == [s.text for s in corpus[:600]]
    assert generate_grammar(SENTENCES, seed=7).digest == corpus.digest
    other = [s.text for s in generate_grammar(600, seed=8)]
    assert sum(a == b.text for a, b in zip(other, corpus[:600], strict=True)) < 10


def test_the_same_sentences_on_every_machine(corpus):
    assert corpus[0].text == FIRST_TEXT
    assert corpus.digest == DIGEST


FIRST_TEXT = "Mary often gragonds the cook ."
DIGEST = "bd5e383b3ef0fe24"


def test_long_sentences_fetch_more_random_numbers():
    everything = GrammarRates(adjective=0.9, degree=0.9, place=0.5, relative=0.5, noun_coordination=0.6)
    corpus = generate_grammar(40, config=GrammarConfig(rates=everything, max_depth=3))
    assert corpus.word_counts.max() > 120


def test_lengths_are_those_of_written_sentences(corpus):
    counts = corpus.word_counts
    assert 9 < counts.mean() < 15
    assert counts.min() >= 3
    assert np.percentile(counts, 99) < 45


def test_errors():
    with pytest.raises(UserError, match=r"a whole number from 1 to 100,000,000\. Got 0"):
        generate_grammar(0)
    with pytest.raises(UserError, match=r"vocabulary must be at least 100\. Got 3"):
        generate_grammar(1, config=GrammarConfig(vocabulary=3))
