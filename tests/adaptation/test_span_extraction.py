import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from adaptation.questions import asked, own_tokenizer, span_model, town_questions
from adaptation.squad_script import script
from transformers import BertConfig, BertForMaskedLM, BertForQuestionAnswering, GPT2Config, GPT2ForQuestionAnswering

from infoflow.adaptation import Predictions, SpanExtraction
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.objectives import Noise
from infoflow.training import TrainConfig, TrainingData, train

CORPUS = town_questions(12)
TOKENIZER = own_tokenizer(CORPUS)
VOCABULARY = Vocabulary.from_tokenizer(TOKENIZER)
TASK = SpanExtraction(task="towns", doc_stride=8)
MODEL = span_model(len(TOKENIZER))


def _rows(corpus=CORPUS, task=TASK, max_length=24):
    return task.rows(corpus, TOKENIZER, max_length)


def _batch(rows, indices, task=TASK):
    data = TrainingData(source=rows, vocabulary=VOCABULARY)
    return data.batch(task, np.asarray(indices), ("test",), 0)


def test_the_loss_is_that_of_transformers():
    rows = _rows()
    batch = _batch(rows, [0, 1, 2])
    losses = TASK.example_losses(MODEL, batch)
    for place, index in enumerate([0, 1, 2]):
        window = rows.windows[index]
        output = MODEL(
            input_ids=torch.tensor(window.input_ids)[None],
            token_type_ids=torch.tensor(window.segments)[None],
            start_positions=torch.tensor([window.start]),
            end_positions=torch.tensor([window.end]),
        )
        torch.testing.assert_close(losses[place], output.loss, atol=1e-5, rtol=1e-5)
    term = TASK.loss(MODEL, batch, Noise())["span"]
    torch.testing.assert_close(term.total, losses.sum())
    assert term.count == 3


def test_padding_changes_no_loss():
    rows = _rows(town_questions(6, facts=2), max_length=64)
    longer = _rows(town_questions(3, facts=6), max_length=64)
    alone = TASK.example_losses(MODEL, _batch(rows, [0]))

    class Both:
        sentence_ids = np.arange(2)
        lengths = np.array([rows.lengths[0], longer.lengths[0]])
        row = staticmethod(lambda index: [rows, longer][index].row(0))
        example = staticmethod(lambda index: [rows, longer][index].example(0))

    padded = TASK.example_losses(MODEL, _batch(Both(), [0, 1]))
    assert Both.lengths[1] > Both.lengths[0]
    torch.testing.assert_close(padded[:1], alone, atol=1e-5, rtol=1e-5)


def test_windows_that_ask_for_nothing_weigh_nothing():
    corpus = asked(("Ann lives in Oslo.", "Where?", ["Bern"], [13]), ("Ann lives in Oslo.", "Where?", ["Oslo"], [13]))
    rows = _rows(corpus, max_length=64)
    batch = _batch(rows, [0, 1])
    losses = TASK.example_losses(MODEL, batch)
    assert losses[0] == 0
    assert losses[1] > 0
    assert TASK.counts(batch) == {"span": 1}


def _slowly(rows, corpus, task, model=MODEL) -> list[list[tuple[str, float]]]:
    """Each question's distinct answers with their sums of start and end: the best pairs of each window, joined."""
    best: list[dict[str, float]] = [{} for _ in corpus]
    for window in rows.windows:
        ids, segments = torch.tensor(window.input_ids)[None], torch.tensor(window.segments)[None]
        with torch.no_grad():
            output = model(input_ids=ids, token_type_ids=segments)
        start, end = output.start_logits[0].tolist(), output.end_logits[0].tolist()
        text, scores, pairs = corpus[window.example].text, best[window.example], []
        for i in range(len(start)):
            for j in range(i, min(i + task.answer_length, len(start))):
                if window.best[i] and window.offsets[j, 0] >= 0:
                    pairs.append((start[i] + end[j], text[window.offsets[i, 0] : window.offsets[j, 1]].strip()))
        for score, said in sorted(pairs, reverse=True)[: task.best]:
            scores[said] = max(scores.get(said, -math.inf), score)
        if task.nullable:
            none = start[window.null] + end[window.null]
            scores[""] = min(scores.get("", math.inf), none)
    return [sorted(scores.items(), key=lambda one: -one[1]) for scores in best]


@pytest.mark.parametrize("batch_tokens", [24, 100, 4000])
def test_predictions_are_those_of_one_window_at_a_time(batch_tokens):
    rows = _rows()
    found = TASK.predict(MODEL, rows, CORPUS, VOCABULARY, batch_tokens)
    assert list(found.said) == [answers[0][0] for answers in _slowly(rows, CORPUS, TASK)]
    assert list(found.wanted) == [one.answers[0] for one in CORPUS]
    for said, value, ranked in zip(found.said, found.values, found.alternatives, strict=True):
        assert ranked[0] == (said, pytest.approx(value))
        assert 1 <= len(ranked) <= TASK.best
        assert sum(chance for _, chance in ranked) == pytest.approx(1)
        assert [chance for _, chance in ranked] == sorted((chance for _, chance in ranked), reverse=True)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize(("best", "longest"), [(1, 4), (3, 1), (12, 9)])
def test_ranked_answers_are_the_best_of_all_pairs(best, longest, nullable):
    """With and without "no answer" among them, by heads of other weights."""
    task = replace(TASK, best=best, answer_length=longest, nullable=nullable, null_threshold=-1e6)
    rows = _rows(task=task)
    for seed in range(4):
        model = copy.deepcopy(MODEL)
        torch.nn.init.normal_(model.qa_outputs.weight, generator=torch.Generator().manual_seed(seed))
        ranked = _slowly(rows, CORPUS, task, model)
        found = task.predict(model, rows, CORPUS, VOCABULARY, 100)
        for told, answers in zip(found.alternatives, ranked, strict=True):
            answers = sorted(answers, key=lambda one: one[0] != "")[:best]  # none first, by the threshold
            weights = np.exp(np.array([score for _, score in answers]) - max(score for _, score in answers))
            assert [text for text, _ in told] == [text for text, _ in answers]
            np.testing.assert_allclose([chance for _, chance in told], weights / weights.sum(), rtol=1e-4)


def test_none_is_said_where_it_is_better_by_more_than_the_threshold():
    rows, task = _rows(), replace(TASK, nullable=True)
    margins = [
        dict(answers)[""] - max(score for said, score in answers if said) for answers in _slowly(rows, CORPUS, task)
    ]
    for threshold in (min(margins) - 1, np.median(margins) + 1e-3, 0.0, max(margins) + 1):
        found = replace(task, null_threshold=float(threshold)).predict(MODEL, rows, CORPUS, VOCABULARY, 100)
        assert [said == "" for said in found.said] == [margin > threshold for margin in margins]


def test_the_order_of_questions_changes_no_answer():
    order = np.random.default_rng(0).permutation(len(CORPUS))
    mixed = CORPUS.select(order)
    first = TASK.predict(MODEL, _rows(), CORPUS, VOCABULARY, 100)
    second = TASK.predict(MODEL, _rows(mixed), mixed, VOCABULARY, 100)
    assert [first.said[row] for row in order] == list(second.said)


def test_an_answer_may_be_none_where_the_task_has_such():
    rows = _rows()
    always = replace(TASK, nullable=True, null_threshold=-1e6)
    never = replace(TASK, nullable=True, null_threshold=1e6)
    assert set(always.predict(MODEL, rows, CORPUS, VOCABULARY, 100).said) == {""}
    found = never.predict(MODEL, rows, CORPUS, VOCABULARY, 100)
    assert found.said == TASK.predict(MODEL, rows, CORPUS, VOCABULARY, 100).said


def test_scores_are_means_with_paired_replicates():
    corpus = town_questions(30, impossible=0.3)
    said = tuple((one.answers or [""])[0] if row % 3 else "Ann lives in Oslo" for row, one in enumerate(corpus))
    predictions = Predictions(said=said, wanted=said, values=np.ones(len(said)))
    scores = {one.metric: one.row for one in replace(TASK, nullable=True).scores(predictions, corpus, CORPUS)}
    assert list(scores) == ["f1", "exact_match", "answerable_f1", "unanswerable_accuracy"]
    blocks = block_of(corpus.content_ids)
    for metric, place in (("f1", 1), ("exact_match", 0)):
        each = np.array([script(one, two.answers)[place] for one, two in zip(said, corpus, strict=True)])
        assert scores[metric]["value"] == pytest.approx(each.mean())
        weights = replicate_weights()[:, blocks]
        np.testing.assert_allclose(scores[metric]["replicates"], (weights * each).sum(1) / weights.sum(1))
        assert scores[metric]["count"] == 30
        assert scores[metric]["low"] <= scores[metric]["value"] <= scores[metric]["high"]
    assert scores["f1"]["baseline"] == pytest.approx(_best_guess(corpus, CORPUS))
    has_answer = np.array([bool(one.answers) for one in corpus])
    none = np.mean([said[row] == "" for row in np.flatnonzero(~has_answer)])
    assert scores["unanswerable_accuracy"]["value"] == pytest.approx(none)


def _best_guess(corpus, training) -> float:
    """F1 of the guess that is best in training: no answer, the first sentence, or the most frequent answer."""
    answers = [one.answers[0] for one in training]
    often = max(dict.fromkeys(answers), key=answers.count)
    guesses = [lambda one: "", lambda one: one.text.split(".")[0] + ".", lambda one: often]
    by_training = [np.mean([script(guess(one), one.answers)[1] for one in training]) for guess in guesses]
    best = guesses[int(np.argmax(by_training))]
    return np.mean([script(best(one), one.answers)[1] for one in corpus])


def test_right_answers_are_those_that_match_exactly():
    corpus = asked(("The Oslo.", "Where?", ["Bern", "the Oslo"], [0, 0]), ("Oslo.", "Where?", [], []))
    for said, right in ((("Oslo!", ""), [True, True]), (("Bonn", "Oslo"), [False, False])):
        assert TASK.right(Predictions(said=said, wanted=said, values=np.ones(2)), corpus).tolist() == right


def test_only_answerable_questions_have_two_metrics():
    predictions = Predictions(said=("",) * 12, wanted=("",) * 12, values=np.ones(12))
    scores = replace(TASK, nullable=True).scores(predictions, CORPUS, CORPUS)
    assert [(one.metric, one.row["value"]) for one in scores] == [("f1", 0.0), ("exact_match", 0.0)]


def _decoder():
    torch.manual_seed(0)
    return GPT2ForQuestionAnswering(GPT2Config(vocab_size=len(TOKENIZER), n_embd=16, n_layer=1, n_head=2)).eval()


def test_a_decoder_is_refused_unless_it_is_asked_for():
    batch = _batch(_rows(), [0])
    with pytest.raises(UserError, match=r"sees the whole passage\. GPT2ForQuestionAnswering is a decoder"):
        TASK.example_losses(_decoder(), batch)
    assert replace(TASK, causal_spans=True).example_losses(_decoder(), batch).item() > 0


def test_an_encoder_made_causal_is_refused_too():
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        is_decoder=True,
    )  # fmt: skip
    with pytest.raises(UserError, match="is a decoder"):
        TASK.example_losses(BertForQuestionAnswering(config), _batch(_rows(), [0]))


@pytest.mark.parametrize("seed", range(6))
def test_an_encoder_that_hardly_looks_around_is_no_decoder_in_half_precision(seed):
    """Of half of these seeds what is said of the first token is the same in bfloat16 whatever follows."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        initializer_range=0.005,
    )  # fmt: skip
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert TASK.example_losses(BertForQuestionAnswering(config), _batch(_rows(), [0])).item() > 0


def test_an_encoder_that_collapsed_is_no_decoder():
    """What it says of the first token differs by less than rounding, whatever follows."""
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    module = BertForQuestionAnswering(config).eval()
    with torch.no_grad():
        for layer in module.bert.encoder.layer:
            layer.attention.output.dense.weight.mul_(1e-7)
    first, other = module(torch.tensor([[5, 6, 7, 8], [5, 9, 10, 11]])).start_logits[:, 0]
    torch.testing.assert_close(first, other, rtol=1e-6, atol=0)
    assert TASK.example_losses(module, _batch(_rows(), [0])).item() > 0


def test_a_model_without_the_head_is_refused():
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    with pytest.raises(UserError, match=r"scores for starts and ends. Got a BertForMaskedLM"):
        TASK.example_losses(BertForMaskedLM(config), _batch(_rows(), [0]))


@pytest.mark.slow
def test_a_tiny_model_learns_to_point(tmp_path):
    corpus = town_questions(400, facts=2, seed=1)
    model = span_model(len(TOKENIZER), width=32)
    task = SpanExtraction(task="towns")
    data = TrainingData(source=task.rows(corpus, TOKENIZER, 64), vocabulary=VOCABULARY, tokenizer=TOKENIZER)
    settings = {"updates": 150, "batch_tokens": 1200, "learning_rate": 3e-3, "device": "cpu", "precision": "fp32"}
    result = train(task, TrainConfig(**settings), data, model, tmp_path)
    test = town_questions(40, facts=2, seed=2)
    found = task.predict(model.eval(), task.rows(test, TOKENIZER, 64), test, VOCABULARY, 2000)
    f1, exact = (score.row for score in task.scores(found, test, corpus))
    assert f1["low"] > f1["baseline"]
    assert exact["value"] > 0.35  # of two towns in each passage one is right
    loaded = BertForQuestionAnswering.from_pretrained(result.model).eval()
    ids = torch.tensor(data.source.row(0))[None]
    torch.testing.assert_close(loaded(ids).start_logits, model(ids).start_logits)
