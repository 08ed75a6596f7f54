"""Each task against a plain loop of transformers, one example at a time; padding, batches and order change nothing."""

import dataclasses
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from infoflow.adaptation import Choice, Classification, Predictions, Regression, Tagging
from infoflow.foundation import UserError, stream
from infoflow.training import TrainConfig, TrainingData, train, trained_objective

FAMILIES = ("bert", "gpt2", "bart", "t5")


def whole_batch(task, rows, vocabulary, places):
    return TrainingData(source=rows, vocabulary=vocabulary).batch(task, np.asarray(places), ("test",), 0)


def check_batches(task, module, rows, vocabulary):
    """The loss of a batch is that of its examples one by one, whatever is padded."""
    places = np.arange(len(rows.lengths))
    with torch.no_grad():
        together = task.example_losses(module, whole_batch(task, rows, vocabulary, places))
        alone = [task.example_losses(module, whole_batch(task, rows, vocabulary, [place])) for place in places]
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)
        batches = [whole_batch(task, rows, vocabulary, part) for part in (places, places[::-1][:5])]
        for batch in batches:
            term = task.loss(module, batch, batch.noise)[task.name]
            assert term.count == task.counts(batch)[task.name]
        return together


def check_predictions(task, module, rows, corpus, vocabulary):
    """What is said depends neither on the size of batches nor on the order of the examples."""
    module.train()
    said = task.predict(module, rows, corpus, vocabulary, 100_000)
    assert module.training
    one_by_one = task.predict(module, rows, corpus, vocabulary, 1)
    assert said.said == one_by_one.said
    np.testing.assert_allclose(said.values, one_by_one.values, rtol=1e-4, atol=1e-5)
    module.eval()
    return said


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pairs", [False, True])
def test_classification_is_that_of_transformers(family, pairs, headed, tokenizer, vocabulary, texts, corpus_of):
    columns = {"text": texts(12), "label": ["x", "y", "z"] * 4} | ({"second": texts(12, seed=1)} if pairs else {})
    corpus = corpus_of(**columns)
    task = Classification(task="t", labels=("x", "y", "z"))
    module = headed(family, "AutoModelForSequenceClassification", num_labels=3)
    rows = task.rows(corpus, tokenizer, 64)
    losses = check_batches(task, module, rows, vocabulary)
    said = check_predictions(task, module, rows, corpus, vocabulary)
    for row, sentence in enumerate(corpus):
        # GPT-2 would add the embedding of a word to every token.
        encoded = tokenizer(sentence.text, sentence.second, return_tensors="pt", return_token_type_ids=family == "bert")
        with torch.no_grad():
            output = module(**encoded, labels=torch.tensor([task.labels.index(sentence.label)]), use_cache=False)
        assert float(output.loss) == pytest.approx(float(losses[row]), rel=1e-4, abs=1e-5)
        probabilities = output.logits.softmax(-1)[0]
        assert said.said[row] == task.labels[int(probabilities.argmax())]
        assert said.values[row] == pytest.approx(float(probabilities.max()), rel=1e-4)
    assert said.wanted == ("x", "y", "z") * 4


def test_segments_of_a_pair_reach_a_model_that_has_them(headed, tokenizer, vocabulary, texts, corpus_of):
    corpus = corpus_of(text=texts(4), second=texts(4, seed=1), label=["x", "y"] * 2)
    task = Classification(task="t", labels=("x", "y"))
    batch = whole_batch(task, task.rows(corpus, tokenizer, 64), vocabulary, range(4))
    wanted = [tokenizer(s.text, s.second, return_token_type_ids=True)["token_type_ids"] for s in corpus]
    for row, segments in enumerate(wanted):
        assert batch["token_type_ids"][row, : len(segments)].tolist() == segments
    module = headed("bert", "AutoModelForSequenceClassification")
    with torch.no_grad():
        before = task.example_losses(module, batch)
        module.bert.embeddings.token_type_embeddings.weight[1, :8] += 1
        assert not torch.allclose(task.example_losses(module, batch), before)


def test_several_labels_of_an_example(headed, tokenizer, vocabulary, texts, corpus_of):
    corpus = corpus_of(text=texts(6), label=["x|z", None, "y", "x", "z", "x|y|z"])
    task = Classification(task="t", labels=("x", "y", "z"), multi=True)
    module = headed(
        "bert", "AutoModelForSequenceClassification", num_labels=3, problem_type="multi_label_classification"
    )
    rows = task.rows(corpus, tokenizer, 64)
    losses = check_batches(task, module, rows, vocabulary)
    said = check_predictions(task, module, rows, corpus, vocabulary)
    for row, sentence in enumerate(corpus):
        wanted = torch.tensor([[float(label in (sentence.label or "")) for label in task.labels]])
        with torch.no_grad():
            output = module(**tokenizer(sentence.text, return_tensors="pt"), labels=wanted)
        assert 3 * float(output.loss) == pytest.approx(float(losses[row]), rel=1e-4)  # theirs is the mean over labels
        chosen = output.logits.sigmoid()[0] >= 0.5
        assert said.said[row] == "|".join(label for label, yes in zip(task.labels, chosen, strict=True) if yes)
    assert said.wanted[:3] == ("x|z", "", "y")
    assert [score.metric for score in task.scores(said, corpus, corpus)] == ["micro_f1", "macro_f1", "accuracy"]


def test_the_best_set_is_the_best_of_all_sets(corpus_of):
    from sklearn.metrics import f1_score

    task = Classification(task="t", labels=("w", "x", "y", "z"), multi=True)
    for seed in range(5):
        wanted = stream("best-set", seed).random((40, 4)) < [0.6, 0.45, 0.3, 0.05]
        labels = ["|".join(np.array(task.labels)[row]) or None for row in wanted]
        corpus = corpus_of(text=[f"text {row}" for row in range(40)], label=labels)
        right = tuple(label or "" for label in labels)
        scores = task.scores(Predictions(said=right, wanted=right, values=np.ones(40)), corpus, corpus)
        found = next(score.row["baseline"] for score in scores if score.metric == "micro_f1")
        every = [
            f1_score(wanted, np.broadcast_to(chosen, wanted.shape), average="micro", zero_division=0)
            for chosen in product([False, True], repeat=4)
        ]
        assert found == pytest.approx(max(every))


@pytest.mark.parametrize("family", FAMILIES)
def test_regression_is_in_the_unit_of_the_labels(family, headed, tokenizer, vocabulary, texts, corpus_of):
    numbers = [100, 101.5, 103, 99, 104, 102]
    corpus = corpus_of(text=texts(6), second=texts(6, seed=1), label=[str(value) for value in numbers])
    task = Regression.of("t", corpus)
    assert (task.mean, task.deviation) == (pytest.approx(np.mean(numbers)), pytest.approx(np.std(numbers)))
    module = headed(family, "AutoModelForSequenceClassification", num_labels=1)
    rows = task.rows(corpus, tokenizer, 64)
    losses = check_batches(task, module, rows, vocabulary)
    said = check_predictions(task, module, rows, corpus, vocabulary)
    for row, sentence in enumerate(corpus):
        encoded = tokenizer(sentence.text, sentence.second, return_tensors="pt", return_token_type_ids=family == "bert")
        with torch.no_grad():
            output = float(module(**encoded, use_cache=False).logits)
        value = task.mean + task.deviation * output
        assert said.values[row] == pytest.approx(value, rel=1e-5)
        assert float(losses[row]) == pytest.approx(((value - numbers[row]) / task.deviation) ** 2, rel=1e-3, abs=1e-5)
    scores = task.scores(said, corpus, corpus)
    assert [score.metric for score in scores] == ["pearson", "spearman", "r2"]
    assert scores[2].row["baseline"] == pytest.approx(0, abs=1e-9)
    exact = dataclasses.replace(said, said=said.wanted)
    assert not task.right(exact, corpus).any()  # no number is right to the letter, whatever its digits


def test_a_regression_needs_numbers_that_differ(corpus_of):
    with pytest.raises(UserError, match=r"example 2, has \"good\""):
        Regression.of("t", corpus_of(text=["a", "b"], label=["1", "good"]))
    with pytest.raises(UserError, match=r'example 1, has "nan"'):
        Regression.of("t", corpus_of(text=["a", "b"], label=["nan", "1"]))
    with pytest.raises(UserError, match=r"needs labels that differ. All 2 of made are 3"):
        Regression.of("t", corpus_of(text=["a", "b"], label=["3", "3.0"]))


TAGS = ("O", "B-X", "I-X")


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_tagging_reads_the_first_piece_of_each_word(family, headed, tokenizer, vocabulary, texts, tagged):
    # "unknownword" has several pieces.
    words = [text.replace("very", "unseenword").split() for text in texts(10)]
    tags = [[TAGS[len(word) % 3] for word in sentence] for sentence in words]
    corpus, task = tagged(words, tags), Tagging(task="t", labels=TAGS)
    module = headed(family, "AutoModelForTokenClassification", num_labels=3)
    rows = task.rows(corpus, tokenizer, 64)
    losses = check_batches(task, module, rows, vocabulary)
    said = check_predictions(task, module, rows, corpus, vocabulary)
    assert max(len(rows.row(row)) - 2 - len(sentence) for row, sentence in enumerate(words)) > 0
    for row, (sentence, wanted) in enumerate(zip(words, tags, strict=True)):
        ids, first = [vocabulary.start], []
        for index, word in enumerate(sentence):
            first.append(len(ids))
            # Study tokenizers mark the space before a word.
            ids += tokenizer(f"{'' if index == 0 else 'a '}{word}", add_special_tokens=False)["input_ids"][index > 0 :]
        ids.append(vocabulary.end)
        assert rows.row(row).tolist() == ids
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([ids])).logits[0, first]
        right = torch.tensor([TAGS.index(tag) for tag in wanted])
        assert float(F.cross_entropy(logits, right)) == pytest.approx(float(losses[row]), rel=1e-4)
        assert said.said[row] == " ".join(TAGS[best] for best in logits.argmax(-1))
        assert said.wanted[row] == " ".join(wanted)
    batch = whole_batch(task, rows, vocabulary, range(10))
    term = task.loss(module, batch, batch.noise)["tagging"]
    assert term.count == sum(map(len, words))
    lengths = torch.tensor([float(len(sentence)) for sentence in words])
    assert float(term.total.detach()) == pytest.approx(float((losses * lengths).sum()), rel=1e-4)


def test_words_beyond_the_longest_length_are_wrong(headed, tokenizer, vocabulary, tagged):
    words = [["the", "cat", "sees", "a", "big", "dog"], ["a", "dog"]]
    tags = [["O", "B-X", "O", "O", "B-X", "I-X"], ["O", "B-X"]]
    corpus, task = tagged(words, tags), Tagging(task="t", labels=TAGS)
    module = headed("bert", "AutoModelForTokenClassification", num_labels=3)
    with torch.no_grad():  # always says O
        module.classifier.weight.zero_()
        module.classifier.bias[:] = torch.tensor([1.0, 0.0, 0.0])
    whole = task.predict(module, task.rows(corpus, tokenizer, 64), corpus, vocabulary, 1000)
    cut = task.predict(module, task.rows(corpus, tokenizer, 5), corpus, vocabulary, 1000)
    assert whole.said == ("O O O O O O", "O O")
    assert cut.said == ("O O O [not-read] [not-read] [not-read]", "O O")
    of_words = {score.metric: score.row for score in task.scores(whole, corpus, corpus)}
    of_cut = {score.metric: score.row for score in task.scores(cut, corpus, corpus)}
    assert (of_words["accuracy"]["value"], of_cut["accuracy"]["value"]) == (4 / 8, 3 / 8)
    assert of_words["accuracy"]["baseline"] == of_cut["accuracy"]["baseline"] == 4 / 8
    assert of_words["entity_f1"]["value"] == of_cut["entity_f1"]["value"] == 0


def test_tags_that_mark_no_entities_are_scored_by_word(tagged):
    from sklearn.metrics import f1_score

    tags = [["DET", "NOUN", "VERB"], ["DET", "NOUN"]]
    corpus = tagged([["a", "b", "c"], ["d", "e"]], tags)
    said = Predictions(said=("DET DET VERB", "DET [not-read]"), wanted=("DET NOUN VERB", "DET NOUN"), values=np.ones(2))
    accuracy, macro = Tagging(task="t", labels=("DET", "NOUN", "VERB")).scores(said, corpus, corpus)
    assert (accuracy.metric, accuracy.row["value"], accuracy.row["count"]) == ("accuracy", 3 / 5, 5)
    flat = ["DET", "NOUN", "VERB", "DET", "NOUN"], ["DET", "DET", "VERB", "DET", "?"]
    assert macro.row["value"] == pytest.approx(f1_score(*flat, labels=["DET", "NOUN", "VERB"], average="macro"))


@pytest.mark.parametrize("labels", [["2", "0", "1", "0"], ["a cat", "a dog", "a cat", "a house"]])
def test_choice_is_that_of_transformers(labels, headed, tokenizer, vocabulary, texts, corpus_of):
    choices = [
        ["the dog", "a house", "a cat"],
        ["a dog", "the cat"],
        ["the house", "a cat", "runs", "not"],
        ["a house", "b"],
    ]
    corpus = corpus_of(text=texts(4), question=texts(4, seed=1), choices=choices, label=labels)
    task, module = Choice(task="t"), headed("bert", "AutoModelForMultipleChoice")
    rows = task.rows(corpus, tokenizer, 64)
    losses = check_batches(task, module, rows, vocabulary)
    said = check_predictions(task, module, rows, corpus, vocabulary)
    right = (2, 0, 1, 0)
    for row, sentence in enumerate(corpus):
        count = len(sentence.choices)
        encoded = tokenizer(
            [sentence.text] * count,
            [f"{sentence.question} {choice}" for choice in sentence.choices],
            padding=True,
            return_tensors="pt",
            return_token_type_ids=True,
        )
        with torch.no_grad():
            output = module(**{name: value[None] for name, value in encoded.items()}, labels=torch.tensor([right[row]]))
        assert float(output.loss) == pytest.approx(float(losses[row]), rel=1e-4)
        assert said.said[row] == sentence.choices[int(output.logits.argmax())]
        assert said.wanted[row] == sentence.choices[right[row]]
        assert said.values[row] == pytest.approx(float(output.logits.softmax(-1).max()), rel=1e-4)
    batch = whole_batch(task, rows, vocabulary, range(4))
    assert batch.source_tokens == sum(len(rows.row(row)) for row in range(4))
    (score,) = task.scores(said, corpus, corpus)
    assert score.row["value"] == np.mean([a == b for a, b in zip(said.said, said.wanted, strict=True)])
    assert score.row["baseline"] == 0.5


def test_smoothing_of_a_choice_is_over_the_choices_that_there_are(headed, tokenizer, vocabulary, texts, corpus_of):
    choices = [["the dog", "a house", "a cat"], ["a dog", "the cat"]]
    corpus = corpus_of(text=texts(2), question=texts(2, seed=1), choices=choices, label=["0", "1"])
    task, module = Choice(task="t"), headed("bert", "AutoModelForMultipleChoice")
    rows = task.rows(corpus, tokenizer, 64)
    with torch.no_grad():
        for place, right in ((0, 0), (1, 1)):
            alone = whole_batch(task, rows, vocabulary, [place])
            logits = module(**{name: alone[name] for name in ("input_ids", "attention_mask", "token_type_ids")}).logits
            wanted = F.cross_entropy(logits, torch.tensor([right]), label_smoothing=0.1)
            found = task.loss(module, alone, alone.noise, label_smoothing=0.1)["choice"].total
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        both = whole_batch(task, rows, vocabulary, [0, 1])
        parts = [whole_batch(task, rows, vocabulary, [place]) for place in (0, 1)]
        total = sum(task.loss(module, each, each.noise, 0.1)["choice"].total for each in parts)
        torch.testing.assert_close(
            task.loss(module, both, both.noise, 0.1)["choice"].total, total, rtol=1e-4, atol=1e-5
        )


def test_the_text_gives_way_to_question_and_choice(tokenizer, corpus_of):
    corpus = corpus_of(
        text=["the cat " * 20], question=["a dog sees"], choices=[["a house", "the dog runs"]], label=["1"]
    )
    rows = Choice(task="t").rows(corpus, tokenizer, 14)
    for text, choice in zip(rows.example(0).texts, ("a house", "the dog runs"), strict=True):
        assert len(text) == 14
        assert tokenizer.decode(text).endswith(f"[SEP] a dog sees {choice}[SEP]")
    with pytest.raises(
        UserError, match=r'index of the right choice, counted from 0, or the choice itself.*example 1, has "2"'
    ):
        Choice(task="t").rows(corpus_of(text=["a"], question=["b"], choices=[["c", "d"]], label=["2"]), tokenizer, 14)
    with pytest.raises(UserError, match=r"at least two answers.*example 1, has 1"):
        Choice(task="t").rows(corpus_of(text=["a"], question=["b"], choices=[["c"]], label=["0"]), tokenizer, 14)


def test_training_learns_and_continues(tmp_path, headed, tokenizer, vocabulary, texts, corpus_of):
    drawn = texts(160, longest=8)
    corpus = corpus_of(text=drawn, label=["animal" if {"cat", "dog"} & set(text.split()) else "none" for text in drawn])
    learned, held_out = corpus.select(np.arange(120)), corpus.select(np.arange(120, 160))
    task = Classification(task="t", labels=("animal", "none"))
    config = TrainConfig(updates=120, batch_sentences=16, learning_rate=3e-3, save_every=60, device="cpu")
    data = TrainingData(source=task.rows(learned, tokenizer, 64), vocabulary=vocabulary, tokenizer=tokenizer)
    module = headed("bert", "AutoModelForSequenceClassification")
    first = train(task, config, data, module, tmp_path)
    said = task.predict(module, task.rows(held_out, tokenizer, 64), held_out, vocabulary, 1000)
    accuracy = task.scores(said, held_out, learned)[0]
    assert accuracy.row["value"] > 0.9 > accuracy.row["baseline"]
    assert trained_objective(first.model) is None  # and no warning of an objective that nobody knows
    # The same call finds the finished run, labels and all.
    again = headed("bert", "AutoModelForSequenceClassification")
    assert train(task, config, data, again, tmp_path) == first
    other = TrainingData(
        source=task.rows(corpus_of(text=drawn[:120], label=["animal", "none"] * 60), tokenizer, 64),
        vocabulary=vocabulary,
    )
    with pytest.raises(UserError, match=r"a run with other settings: source was"):
        train(task, config, other, headed("bert", "AutoModelForSequenceClassification"), tmp_path)
