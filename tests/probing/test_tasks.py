"""What tasks ask: labels against a second reading of the same sentences, parts that share nothing, bad input."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from datasets import Dataset

from infoflow.corpus import Corpus, generate_grammar, load_corpus
from infoflow.foundation import UserError
from infoflow.probing import MOST_CLASSES, build_task, tasks

pytestmark = pytest.mark.slow

TREEBANK = """\
# text = the old dogs saw two cats .
1\tthe\tthe\tDET\tDT\t_\t3\tdet\t_\t_
2\told\told\tADJ\tJJ\t_\t3\tamod\t_\t_
3\tdogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t_\tEntity=(e1-animal-1)
4\tsaw\tsee\tVERB\tVBD\tTense=Past|VerbForm=Fin\t0\troot\t_\t_
5\ttwo\ttwo\tNUM\tCD\t_\t6\tnummod\t_\tEntity=(e2
6\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t4\tobj\t_\tEntity=e2)
7\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# text = he knows that she sleeps and they hide in her house
1\the\the\tPRON\tPRP\tNumber=Sing\t2\tnsubj\t_\tEntity=(e3-person-1-giv)
2\tknows\tknow\tVERB\tVBZ\tTense=Pres|VerbForm=Fin\t0\troot\t_\t_
3\tthat\tthat\tSCONJ\tIN\t_\t5\tmark\t_\t_
4\tshe\tshe\tPRON\tPRP\tNumber=Sing\t5\tnsubj\t_\tEntity=(e4)
5\tsleeps\tsleep\tVERB\tVBZ\tTense=Pres|VerbForm=Fin\t2\tccomp\t_\t_
6\tand\tand\tCCONJ\tCC\t_\t8\tcc\t_\t_
7\tthey\tthey\tPRON\tPRP\tNumber=Plur\t8\tnsubj\t_\tEntity=(e5)
8\thide\thide\tVERB\tVBP\tTense=Pres|VerbForm=Fin\t2\tconj\t_\t_
9\tin\tin\tADP\tIN\t_\t11\tcase\t_\t_
10\ther\ther\tPRON\tPRP$\t_\t11\tnmod:poss\t_\tEntity=(e6-place-1(e4)
11\thouse\thouse\tNOUN\tNN\tNumber=Sing\t8\tobl\t_\tEntity=e6)

# text = the dog was kind
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\tNN\tNumber=Sing\t4\tnsubj\t_\tEntity=(e7)
3\twas\tbe\tAUX\tVBD\tTense=Past|VerbForm=Fin\t4\tcop\t_\t_
4\tkind\tkind\tADJ\tJJ\t_\t0\troot\t_\t_
"""
COPIES = 60


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """The three sentences, many times over; a number written before the first word makes each text another."""
    path = tmp_path_factory.mktemp("trees") / "a.conllu"
    blocks = [block.split("\n", 1) for block in TREEBANK.strip().split("\n\n")]
    token = "1-1\t{}" + "\t_" * 8
    path.write_text(
        "\n\n".join(
            f"{text.replace('= ', f'= {n}')}\n{token.format(f'{n}{text.split()[3]}')}\n{rows}"
            for n in range(COPIES)
            for text, rows in blocks
        )
    )
    return Corpus.from_conllu(path, misc=("Entity",), feats=("Number", "Tense", "VerbForm"))


@pytest.fixture(scope="module")
def grammar():
    return generate_grammar(num=400, seed=1)


def asked(task, part="train"):
    """(sentence's words, span, second span, label) of each example, as texts."""
    found, examples = [], getattr(task, part).examples
    for index in range(len(examples)):
        sentence = getattr(task, part).corpus[int(examples.sentence[index])]
        words = sentence.words or sentence.text.split()
        second = None if examples.second is None else " ".join(words[slice(*examples.second[index])])
        found.append((words, " ".join(words[slice(*examples.first[index])]), second, task.names[examples.label[index]]))
    return found


def labels_of(task, first_word):
    """Counter of (span, second, label) over all sentences that begin with a word, once each."""
    return {row[1:] for part in ("train", "dev", "test") for row in asked(task, part) if row[0][0] == first_word}


def test_tags_are_those_of_the_corpus(grammar):
    for name in ("upos", "deprel", "ccg"):
        task = build_task(name, grammar)
        for part in (task.train, task.dev, task.test):
            own = [
                tag
                for row in np.unique(part.examples.sentence)
                for tag in next(part.corpus.select(np.array([row])).column(name))
            ]
            assert [task.names[label] for label in part.examples.label] == own


def test_parts_share_no_text_whatever_its_case(tmp_path):
    texts = [f"dog number {n} sleeps here ." for n in range(200)]
    both = Corpus.from_sentences([*texts, *(text.upper() for text in texts)])
    task = build_task("length", Corpus.from_sentences([*both.column("text"), *(f"{t} now" for t in texts)]))
    seen = [{" ".join(row[0]).casefold() for row in asked(task, part)} for part in ("train", "dev", "test")]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not seen[first] & seen[second]
    sizes = [len(part.examples) for part in (task.train, task.dev, task.test)]
    assert np.abs(np.array(sizes) / 600 - [0.6, 0.2, 0.2]).max() < 0.1


def test_the_order_of_lines_and_other_lines_change_no_part(grammar):
    order = np.random.default_rng(0).permutation(len(grammar))
    for name in ("arc", "bigram-shift"):
        whole, turned = (build_task(name, corpus) for corpus in (grammar, grammar.select(order)))
        less = build_task(name, grammar, rows=np.arange(200))
        few = {str(row) for row in asked(less, "test")}
        assert {str(row) for row in asked(whole, "test")} == {str(row) for row in asked(turned, "test")}
        assert few <= {str(row) for row in asked(whole, "test")}
        assert few


def test_a_test_corpus_is_the_test_part_and_its_sentences_leave_the_others(grammar):
    train, test = grammar.select(np.arange(300)), grammar.select(np.arange(250, 400))
    task = build_task("upos", train.with_test(test))
    assert len(np.unique(task.test.examples.sentence)) == 150
    assert task.left_out["sentences that also occur in the test corpus"] == 50
    kept = {int(row) for part in (task.train, task.dev) for row in part.examples.sentence}
    assert kept == set(range(250))


def test_arcs_are_the_tree_s_and_their_negatives_never_are(grammar):
    task = build_task("arc", grammar)
    examples = task.train.examples
    positive = examples.label == task.names.index("arc")
    assert positive.sum() == (~positive).sum()
    for sentence, first, second, label in zip(
        examples.sentence, examples.first, examples.second, examples.label, strict=True
    ):
        head = grammar[int(sentence)].head
        assert head is not None
        assert (head[first[0]] == second[0]) == (task.names[label] == "arc")
        assert first[0] != second[0]
    again, other = build_task("arc", grammar), build_task("arc", grammar, seed=1)
    np.testing.assert_array_equal(again.train.examples.second, examples.second)
    assert len(other.train.examples) != len(examples) or (other.train.examples.second != examples.second).any()


def test_arc_labels_leave_the_root_out(treebank):
    task = build_task("arc-label", treebank)
    assert labels_of(task, "the") >= {("dogs", "saw", "nsubj"), ("two", "cats", "nummod"), (".", "saw", "punct")}
    assert ("saw", "saw", "root") not in labels_of(task, "the")
    assert task.left_out["roots"] == 3 * COPIES


def test_ancestors_are_the_subtrees_around_a_word(treebank):
    found = {
        name: {row[1:] for row in asked(build_task(name, treebank)) if row[0][0] == "he"}
        for name in ("parent", "grandparent", "great-grandparent")
    }
    assert {("she", None, "ccomp"), ("her", None, "obl"), ("hide", None, "conj"), ("knows", None, "root")} <= found[
        "parent"
    ]
    assert {("she", None, "root"), ("her", None, "conj"), ("knows", None, "top")} <= found["grandparent"]
    assert {("her", None, "root"), ("she", None, "top")} <= found["great-grandparent"]


def test_constituents_and_chunks(treebank):
    constituents = labels_of(build_task("constituents", treebank), "the")
    assert {
        ("the old dogs", None, "nsubj"),
        ("two cats", None, "obj"),
        ("the old dogs saw two cats .", None, "root"),
    } <= constituents
    chunks = labels_of(build_task("chunks", treebank), "he")
    assert chunks == {
        ("he", None, "NP"), ("knows", None, "VP"), ("that", None, "SBAR"), ("she", None, "NP"), ("sleeps", None, "VP"),
        ("they", None, "NP"), ("hide", None, "VP"), ("in", None, "PP"), ("her house", None, "NP"),
    }  # fmt: skip


def test_a_constituent_with_a_gap_is_left_out_and_counted():
    rows = {
        "words": [["a", "b", "c", "d"]] * 40,
        "head": [[-1, 3, 0, 0]] * 40,
        "deprel": [["root", "x", "y", "z"]] * 40,
    }
    rows["words"] = [[f"a{n}", "b", "c", "d"] for n in range(40)]
    corpus = Corpus.from_dataset(Dataset.from_dict(rows), text=None, words="words", tags=("head", "deprel"))
    with pytest.raises(UserError, match="at least two classes"):
        build_task("constituents", corpus)  # {b, d} is split by c: the whole sentence is left
    rows["head"] = [[-1, 0, 3, 0] if n % 2 else [-1, 3, 0, 0] for n in range(40)]
    corpus = Corpus.from_dataset(Dataset.from_dict(rows), text=None, words="words", tags=("head", "deprel"))
    task = build_task("constituents", corpus)
    assert task.left_out["constituents with a gap"] == 20
    assert set(task.names) == {"root", "z"}


def test_coreference_pairs_mentions_of_a_sentence(treebank):
    with pytest.raises(UserError, match="leaves none for the part train"):
        build_task("coreference", treebank.select(np.flatnonzero([s.text.endswith("kind") for s in treebank])))
    task = build_task("coreference", treebank)
    found = labels_of(task, "he")
    assert ("her", "she", "coreferent") in found
    assert {row[2] for row in found} == {"coreferent", "different"}
    assert {row[:2] for row in found if row[2] == "different"} <= {("her", "he"), ("her", "they")}
    counts = Counter(row[3] for row in asked(task))
    assert counts["coreferent"] == counts["different"]


def test_mentions_are_asked_for_the_kind_of_their_entity(treebank):
    task = build_task("entity-spans", treebank)
    assert labels_of(task, "he") == {("he", None, "person"), ("her house", None, "place")}
    assert set(task.names) == {"animal", "person", "place"}
    assert task.left_out["mentions without a kind"] == 5 * COPIES  # e2, e4 twice, e5, e7


def test_spans_of_iob2_columns(tmp_path):
    path = tmp_path / "a.tagged"
    path.write_text("\n".join(f"in{n}\tO\nNew\tB-LOC\nYork\tI-LOC\nlives\tO\nAnn\tB-PER\n" for n in range(40)))
    corpus = Corpus.from_tagged(path, tags=("ner",))
    spans = {row[1:] for row in asked(build_task("ner-spans", corpus))}
    assert spans == {("New York", None, "LOC"), ("Ann", None, "PER")}
    assert {row[3] for row in asked(build_task("ner", corpus))} == {"O", "B-LOC", "I-LOC", "B-PER"}
    renamed = Corpus.from_tagged(path, tags=("entities",))
    assert {row[1:] for row in asked(build_task("entities-spans", renamed))} == spans
    path.write_text("\n".join(f"in{n}\tIN\nNew\tNNP\n" for n in range(40)))
    with pytest.raises(UserError, match=r"IOB2 tags: O, B-LABEL or I-LABEL. Got"):
        build_task("ner-spans", Corpus.from_tagged(path, tags=("ner",)))


def test_number_and_tense_of_the_main_clause(treebank):
    def label(name, first):
        return {row[3] for row in asked(build_task(name, treebank)) if row[0][:2] == first}

    assert label("subject-number", ["the", "old"]) == {"Plur"}
    assert label("subject-number", ["the", "dog"]) == {"Sing"}
    assert label("subject-number", ["he", "knows"]) == set()  # a pronoun is no noun
    assert label("tense", ["he", "knows"]) == {"Pres"}
    assert label("tense", ["the", "dog"]) == {"Past"}  # of the copula
    without = Corpus.from_rows(treebank.dataset, ("text", "words", "upos", "xpos", "head", "deprel"))
    for name in ("tense", "subject-number"):
        assert asked(build_task(name, without)) == asked(build_task(name, treebank))  # from xpos: the same


def test_length_and_depth_in_bins_of_equal_size(grammar):
    for name in ("length", "tree-depth"):
        task = build_task(name, grammar)
        counts = np.bincount(task.train.examples.label)
        assert 3 <= len(task.names) <= 6
        assert counts.max() < 0.5 * counts.sum()
    lengths = {row[3]: len(row[0]) for row in asked(build_task("length", grammar))}
    for name, length in lengths.items():
        low, _, high = name.rstrip("+").partition("–")
        assert int(low) <= length <= (int(high) if high else np.inf if name.endswith("+") else int(low))


def test_word_content_names_the_one_listed_word_of_a_sentence():
    rng = np.random.default_rng(0)
    common, rare = (
        [f"c{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(100)],
        [f"word{chr(97 + n)}" for n in range(20)],
    )
    texts = [" ".join([*rng.choice(common, 30), rng.choice(rare)]) for _ in range(600)]
    task = build_task("word-content", Corpus.from_sentences(texts))
    assert set(task.names) <= set(rare)
    assert all(row[3] in row[0] for row in asked(task))


def test_changed_sentences_have_their_own_corpus(grammar):
    whole = {tuple(words) for words in grammar.column("words")}
    task = build_task("bigram-shift", grammar)
    assert task.train.corpus is not grammar
    for words, _, _, label in asked(task):
        if label == "original":
            assert tuple(words) in whole
            continue
        swaps = [(*words[:n], words[n + 1], words[n], *words[n + 2 :]) for n in range(len(words) - 1)]
        assert tuple(words) not in whole
        assert sum(swap in whole for swap in swaps) == 1
    share = Counter(row[3] for row in asked(task))["changed"] / len(asked(task))
    assert 0.4 < share < 0.6


def test_an_odd_word_is_of_the_same_part_of_speech(grammar):
    tags, holes = {}, {}
    for words, upos in zip(grammar.column("words"), grammar.column("upos"), strict=True):
        for place, (word, tag) in enumerate(zip(words, upos, strict=True)):
            tags.setdefault(word, set()).add(tag)
            holes.setdefault((*words[:place], None, *words[place + 1 :]), set()).add((word, tag))
    changed = [row[0] for row in asked(build_task("odd-man-out", grammar)) if row[3] == "changed"]
    assert len(changed) > 50
    for words in changed:
        replaced = {
            (tag, word)
            for place, word in enumerate(words)
            for original, tag in holes.get((*words[:place], None, *words[place + 1 :]), ())
            if original != word and tag in ("NOUN", "VERB") and tag in tags[word]
        }
        assert replaced


def test_coordinated_clauses_are_exchanged(grammar):
    rows = {"words": [], "head": [], "deprel": [], "upos": []}
    for n in range(120):
        rows["words"].append(["The", f"dog{n}", "ran", ",", "and", "a", "cat", "slept", "."])
        rows["head"].append([1, 2, -1, 7, 7, 6, 7, 2, 2])
        rows["deprel"].append(["det", "nsubj", "root", "punct", "cc", "det", "nsubj", "conj", "punct"])
        rows["upos"].append(["DET", "NOUN", "VERB", "PUNCT", "CCONJ", "DET", "NOUN", "VERB", "PUNCT"])
    corpus = Corpus.from_dataset(Dataset.from_dict(rows), text=None, words="words", tags=("head", "deprel", "upos"))
    task = build_task("coordination-inversion", corpus)
    changed = [" ".join(row[0]) for row in asked(task) if row[3] == "changed"]
    assert changed
    for text in changed:
        number = text.split("dog")[1].split(" ")[0]
        assert text == f"A cat slept , and the dog{number} ran ."


def test_labels_of_whole_sentences(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{'good' if n % 3 else 'bad'}\tfilm {n} was long\n" for n in range(60)))
    task = build_task("sentence-label", Corpus.from_labelled(path))
    assert task.unit == "sentence"
    assert all((row[3] == "bad") == (int(row[0][1]) % 3 == 0) for row in asked(task))
    assert all(row[1] == " ".join(row[0]) for row in asked(task))


def test_the_catalogue_lists_what_a_corpus_can_be_asked(grammar, treebank):
    every = {task.name for task in tasks()}
    assert {
        "upos",
        "arc",
        "arc-label",
        "coreference",
        "constituents",
        "length",
        "bigram-shift",
        "sentence-label",
    } <= every
    own = {task.name for task in tasks(grammar)}
    assert {"ccg", "ccg_left"} <= own
    assert not {"coreference", "xpos", "sentence-label", "text", "head"} & own
    plain = {task.name for task in tasks(Corpus.from_sentences(["a dog sleeps"]))}
    assert plain == {"word", "position", "length", "word-content", "bigram-shift"}
    brackets = {task.name for task in tasks(treebank)}
    assert {"number", "coreference"} <= brackets
    assert "entity" not in brackets  # brackets are no labels


# -- bad input --------------------------------------------------------------------------------------------------------


def with_tags(corpus: Corpus, tag: Callable[[int, int], str]) -> Corpus:
    """The corpus with another tag for each word of each sentence."""
    words = enumerate(corpus.column("words"))
    return corpus.with_column("upos", [[tag(n, place) for place in range(len(row))] for n, row in words])


def test_tags_that_do_not_align_with_words(grammar):
    tags = list(grammar.column("upos"))
    tags[7] = tags[7][:1]
    with pytest.raises(UserError, match=r"upos of .* must have one entry for each word.* has \d+ words and 1 entries"):
        build_task("upos", grammar.with_column("upos", tags))


@pytest.mark.parametrize("first", [[1, 0], [-1, 500], [-1, -2]])
def test_trees_with_circles_or_heads_elsewhere(grammar, first):
    corpus = grammar.with_column("head", [(first + [0] * len(row))[: len(row)] for row in grammar.column("words")])
    for name in ("arc", "tree-depth", "parent", "constituents"):
        with pytest.raises(UserError, match=r"must be a tree. In .*, those of word"):
            build_task(name, corpus)


def test_one_class_and_too_many(grammar):
    with pytest.raises(UserError, match=r'at least two classes\. .* upos has one: "X"'):
        build_task("upos", with_tags(grammar, lambda n, place: "X"))
    large = generate_grammar(num=6000)
    assert sum(map(len, large.column("words"))) > 2 * MOST_CLASSES
    with pytest.raises(UserError, match=f"may have {MOST_CLASSES:,} classes at most. .* upos has"):
        build_task("upos", with_tags(large, lambda n, place: f"{n} {place}"))


def test_no_class_at_all(grammar):
    num = sum(map(len, grammar.column("words")))
    with pytest.raises(
        UserError, match=rf"leaves none for the part train\. Left out are {num:,} words without a tag\.\n"
    ):
        build_task("upos", with_tags(grammar, lambda n, place: "_"))


def test_a_class_of_its_own_for_every_word(grammar):
    unseen = r"none for the part dev\. Left out are \d+ examples of the dev part whose class is not in the training"
    with pytest.raises(UserError, match=unseen):
        build_task("upos", with_tags(grammar, lambda n, place: f"{n} {place}"))


@pytest.mark.parametrize("num", [1, 2])
def test_fewer_sentences_than_parts(num):
    corpus = Corpus.from_sentences([f"{n} dogs" for n in range(num)])
    with pytest.raises(UserError, match="for a training, a development and a test part"):
        build_task("position", corpus)


def test_no_row():
    with pytest.raises(UserError, match="for a training, a development and a test part"):
        build_task("position", load_corpus("grammar:20"), rows=np.zeros(0, dtype=np.int64))


def test_classes_unseen_in_training_are_left_out_and_counted(grammar):
    trained = set(build_task("upos", grammar).train.examples.sentence.tolist())
    unseen = next(n for n in range(len(grammar)) if n not in trained)
    upos = list(grammar.column("upos"))
    upos[unseen] = ["NEW", *upos[unseen][1:]]
    task = build_task("upos", grammar.with_column("upos", upos))
    assert "NEW" not in task.names
    assert sum(count for reason, count in task.left_out.items() if "not in the training part" in reason) == 1


def test_a_task_that_is_none_and_one_that_the_corpus_cannot_be_asked():
    corpus = Corpus.from_sentences(["a dog sleeps"])
    with pytest.raises(UserError, match=r'No task "sintax".*\nTasks of this corpus: word, position'):
        build_task("sintax", corpus)
    with pytest.raises(UserError, match=r"The task upos needs the column upos. The corpus sentences has text"):
        build_task("upos", corpus)
    with pytest.raises(UserError, match="tense needs one of the columns tense, xpos"):
        build_task("tense", generate_grammar(num=30))


def test_the_test_part_of_a_split_has_all_three_parts(tmp_path):
    """Both go by a hash of the text: by the same one, the whole test part of a study would be the probes' test part."""
    corpus = Corpus.from_sentences([f"sentence number {index} is long" for index in range(400)])
    test = corpus.split(seed=0, validation=0.1, test=0.2, rule="source").test
    task = build_task("position", test)
    sizes = [len(np.unique(part.examples.sentence)) for part in (task.train, task.dev, task.test)]
    assert sum(sizes) == len(test)
    assert sizes[0] > sizes[1] > 4
    assert sizes[2] < len(test) / 2
