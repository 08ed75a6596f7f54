import numpy as np
import pandas as pd
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from infoflow.adaptation import Generation, Predictions
from infoflow.corpus import Corpus
from infoflow.foundation import block_of, replicate_weights, stream

WORDS = ("Red", "cats", "are", "running", "past", "the", "old", "house", "today")


def _corpus(num: int, seed: int) -> tuple[Corpus, tuple[str, ...]]:
    """Texts with one to three references, and what is said of each: some words of one of them."""
    rng = stream("text metrics", seed)
    right = [[" ".join(rng.choice(WORDS, size=7)) for _ in range(1 + row % 3)] for row in range(num)]
    said = tuple(" ".join(np.array(each[-1].split())[rng.random(7) < 0.8]).lower() or "cats" for each in right)
    frame = pd.DataFrame(
        {
            "text": [f"{' '.join(each[0].split()[:4])} {row}. More of it." for row, each in enumerate(right)],
            "translation": [each[0] for each in right],
            "references": [each[1:] for each in right],
        }
    )
    return Corpus.from_frame(frame, translation="translation", references="references"), said


CORPUS, SAID = _corpus(40, 0)
TRAIN, _ = _corpus(30, 1)


def _scores(said, corpus, train):
    predictions = Predictions(said=said, wanted=said, values=np.ones(len(said)))
    return {one.metric: one.row for one in Generation(task="words").scores(predictions, corpus, train)}


def _right(corpus):
    return [[one.translation, *(one.references or ())] for one in corpus]


SCORES, WANTED = _scores(SAID, CORPUS, TRAIN), _right(CORPUS)


def _streams(wanted):
    return [[each[place].lower() if place < len(each) else None for each in wanted] for place in range(3)]


def _bleu(said, wanted) -> float:
    return BLEU(force=True).corpus_score([text.lower() for text in said], _streams(wanted)).score / 100


def _chrf(said, wanted) -> float:
    return CHRF().corpus_score([text.lower() for text in said], _streams(wanted)).score / 100


def _rouge(kind):
    def each(said, wanted) -> float:
        scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer([kind], use_stemmer=True)
        return float(
            np.mean(
                [
                    max(scorer.score(one, text)[kind].fmeasure for one in right)
                    for text, right in zip(said, wanted, strict=True)
                ]
            )
        )

    return each


METRICS = {"bleu": _bleu, "chrf": _chrf, **{kind: _rouge(kind) for kind in ("rouge1", "rouge2", "rougeL")}}


@pytest.mark.parametrize("metric", METRICS)
def test_values_are_those_of_the_libraries(metric):
    assert 0.1 < SCORES[metric]["value"] < 0.99
    assert SCORES[metric]["value"] == pytest.approx(METRICS[metric](SAID, WANTED))
    assert SCORES[metric]["count"] == 40
    assert SCORES[metric]["low"] <= SCORES[metric]["value"] <= SCORES[metric]["high"]


@pytest.mark.parametrize("metric", METRICS)
def test_replicates_are_values_of_resampled_examples(metric):
    blocks = block_of(CORPUS.content_ids)
    for replicate in (0, 7):
        weights = replicate_weights()[replicate].astype(int)[blocks]
        drawn = np.repeat(np.arange(len(SAID)), weights)
        expected = METRICS[metric]([SAID[row] for row in drawn], [WANTED[row] for row in drawn])
        assert SCORES[metric]["replicates"][replicate] == pytest.approx(expected)


@pytest.mark.parametrize("metric", METRICS)
def test_the_baseline_is_the_guess_that_is_best_in_training(metric):
    targets = [one.translation for one in TRAIN]
    often = max(dict.fromkeys(targets), key=targets.count)
    guesses = [lambda corpus: [one.text.split(".")[0] + "." for one in corpus], lambda corpus: [often] * len(corpus)]
    trained = [METRICS[metric](guess(TRAIN), _right(TRAIN)) for guess in guesses]
    best = guesses[int(np.argmax(trained))]
    assert SCORES[metric]["baseline"] == pytest.approx(METRICS[metric](best(CORPUS), WANTED))


def test_exact_match_ignores_case_and_spacing():
    frame = pd.DataFrame({"text": ["a"], "translation": ["red CATS"]})
    corpus = Corpus.from_frame(frame, translation="translation")
    assert [_scores((said,), corpus, TRAIN)["exact_match"]["value"] for said in (" Red  cats", "red cat")] == [1, 0]
    expected = np.mean(
        [text.lower() in [one.lower() for one in right] for text, right in zip(SAID, WANTED, strict=True)]
    )
    assert SCORES["exact_match"]["value"] == pytest.approx(expected)
    assert expected > 0


@pytest.mark.parametrize("main", ["rougeL", "bleu", "exact_match"])
def test_the_main_metric_comes_first(main):
    predictions = Predictions(said=SAID, wanted=SAID, values=np.ones(40))
    scores = Generation(task="words", main=main).scores(predictions, CORPUS, TRAIN)
    assert scores[0].metric == main
    assert sorted(score.metric for score in scores) == sorted(SCORES)


@pytest.mark.parametrize(
    "text",
    ["Я еду домой", "Πάω στο σπίτι", "मैं आज जाता हूँ", "أنا ذاهب إلى", "我今天去北京", "나는 오늘 간다", "ฉันชอบแมว"],
)
def test_a_text_of_any_script_agrees_with_itself_alone(text):
    frame = pd.DataFrame({"text": ["a"], "translation": [text]})
    corpus = Corpus.from_frame(frame, translation="translation")
    same, other = (
        {metric: row["value"] for metric, row in _scores((said,), corpus, corpus).items()} for said in (text, "ⵣ")
    )
    assert [same[metric] for metric in ("rougeL", "rouge1", "rouge2", "bleu")] == pytest.approx([1] * 4)
    assert other["rougeL"] == other["rouge1"] == 0
