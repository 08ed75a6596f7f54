"""Several tasks in one model: each as alone but for its prefix, drawn with the shares of the published formula."""

from collections import Counter

import numpy as np
import pytest
import torch
from objectives.zoo import SENTINELS, TRANSLATE, VOCABULARY, framed, mixed, vocabulary
from scipy.stats import chisquare

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import train_tokenizer
from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, MultiTask, Vocabulary, make_objective, mixture_rates, span_mask
from infoflow.training import TrainingData

PREFIX = VOCABULARY.ids[TRANSLATE]
TASKS = [
    "translation", "span-corruption", "replace-spans", "drop-tokens", "denoise-full", "denoise-mask", "deshuffling",
    "prefix-lm", "seq2seq-lm", "bart",
]  # fmt: skip
TWO = MultiTask()


def example(length: int, seed: int = 0) -> Example:
    return Example(texts=(mixed(length, seed),), translation=framed(*stream("french", seed).integers(5, 60, length)))


# -- each task is what it is alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", TRANSLATE])
@pytest.mark.parametrize("task", TASKS)
def test_a_single_task_is_its_objective_behind_the_prefix(task, prefix) -> None:
    single, alone = MultiTask(tasks=(task,), prefixes=(prefix,)), make_objective(task)
    ids = PREFIX if prefix else PREFIX[:0]
    for seed in range(20):
        ours = single.corrupt(example(12, seed), stream("single", seed), VOCABULARY)
        theirs = alone.corrupt(example(12, seed), stream("single", seed), VOCABULARY)
        assert ours.input_ids.tolist() == [theirs.input_ids[0], *ids, *theirs.input_ids[1:]]
        assert ours.selected.tolist() == [theirs.selected[0], *[False] * len(ids), *theirs.selected[1:]]
        for name in ("labels", "decoder_input_ids"):
            assert ours[name].tolist() == theirs[name].tolist()
    assert single.num_sentinels(50) == alone.num_sentinels(50)
    assert single.needs_mask == alone.needs_mask
    assert single.predicted_share == pytest.approx(alone.predicted_share)


def written_out(one: Example, generator: np.random.Generator, objective: MultiTask) -> tuple[list, list]:
    """Input and target of translation and span corruption, token by token."""
    sizes = objective.sizes or (1, 1)
    weights = [min(size, objective.limit or size) ** (1 / objective.temperature) for size in sizes]
    text = one.texts[0].tolist()
    if generator.random() < weights[0] / sum(weights):
        assert one.translation is not None
        return [text[0], *PREFIX.tolist(), *text[1:]], one.translation[1:].tolist()
    source, target, marks, noisy = [text[0]], [], [0, 0], None
    for token, noise in zip(text[1:-1], span_mask(len(text) - 2, 0.15, 3.0, generator), strict=True):
        here, there = (target, source) if noise else (source, target)
        if noise != noisy:  # the other side gets a sentinel where this one goes on
            there.append(SENTINELS[marks[int(noise)]])
            marks[int(noise)] += 1
        here.append(token)
        noisy = noise
    return [*source, text[-1]], [*target, text[-1]]


@pytest.mark.parametrize("options", [{}, {"sizes": (900, 100)}, {"sizes": (900, 100), "limit": 200, "temperature": 3}])
def test_inputs_and_targets_are_those_of_a_written_out_loop(options) -> None:
    objective = MultiTask(**options)
    for seed in range(200):
        ours = objective.corrupt(example(15, seed), stream("loop", seed), VOCABULARY)
        source, target = written_out(example(15, seed), stream("loop", seed), objective)
        assert (ours.input_ids.tolist(), ours.labels.tolist()) == (source, target)
        assert ours["decoder_input_ids"].tolist() == [2, *target[:-1]]


# -- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 50, 1000])
@pytest.mark.parametrize("temperature", [1.0, 2.0, 8.0])
def test_rates_are_those_of_the_paper(limit, temperature) -> None:
    """Raffel et al. 2020, 3.5.2: r = min(e, K) / sum of min(e, K); then to the power of 1 / T, and renormalised."""
    sizes = [700, 20, 3, 90_000]
    first = [min(size, limit or float("inf")) for size in sizes]
    first = [size / sum(first) for size in first]
    scaled = [rate ** (1 / temperature) for rate in first]
    expected = [rate / sum(scaled) for rate in scaled]
    assert mixture_rates(np.array(sizes, dtype=float), limit, temperature) == pytest.approx(expected)


def test_a_limit_of_one_and_a_high_temperature_are_equal_mixing() -> None:
    sizes = np.array([7.0, 2e6, 40.0])
    assert mixture_rates(sizes, limit=1) == pytest.approx([1 / 3] * 3)
    assert mixture_rates(sizes, temperature=1e6) == pytest.approx([1 / 3] * 3, abs=1e-5)
    assert mixture_rates(sizes, limit=10) == pytest.approx([7 / 27, 10 / 27, 10 / 27])
    assert MultiTask(limit=5, temperature=3.0).rates.tolist() == [0.5, 0.5]  # sizes are not given


def test_tasks_are_drawn_with_their_rates() -> None:
    tasks, prefixes = ("translation", "deshuffling", "seq2seq-lm"), ("a", "b", "c")
    known = vocabulary(ids={prefix: np.array([80 + number]) for number, prefix in enumerate(prefixes)})
    objective = MultiTask(tasks=tasks, prefixes=prefixes, sizes=(500, 300, 9000), limit=1000, temperature=1.5)
    drawn = [objective.corrupt(example(3), stream("rates", seed), known).input_ids[1] for seed in range(3000)]
    counts = Counter(int(token) - 80 for token in drawn)
    assert chisquare([counts[number] for number in range(3)], 3000 * objective.rates).pvalue > 1e-3


# -- in training ------------------------------------------------------------------------------------------------------


class Rows:
    """Encoded sentences of different lengths."""

    def __init__(self, name: str) -> None:
        self.rows = [framed(*stream(name, n).integers(5, 60, 4 + n % 7)) for n in range(40)]
        self.sentence_ids = np.arange(40)
        self.lengths = np.array(list(map(len, self.rows)))

    def row(self, index: int) -> np.ndarray:
        return self.rows[index]


DATA = TrainingData(source=Rows("english"), vocabulary=VOCABULARY, target=Rows("french"), target_vocabulary=VOCABULARY)


def test_task_and_noise_of_a_sentence_do_not_depend_on_its_batch() -> None:
    whole = DATA.batch(TWO, np.arange(40), ("training-noise", 0), 3)
    told = [row[1 : 1 + len(PREFIX)].tolist() == PREFIX.tolist() for row in whole.input_ids]
    assert 8 < sum(told) < 32
    for rows in (np.array([7]), np.array([30, 7, 2]), np.arange(40)[::-1]):
        batch = DATA.batch(TWO, rows, ("training-noise", 0), 3)
        for place, row in enumerate(rows.tolist()):
            for name in ("input_ids", "labels", "decoder_input_ids"):
                ours, theirs = batch[name][place], whole[name][row]
                length = min(len(ours), len(theirs))
                assert torch.equal(ours[:length], theirs[:length])
    other = DATA.batch(TWO, np.arange(40), ("training-noise", 0), 4)
    assert [row[1 : 1 + len(PREFIX)].tolist() == PREFIX.tolist() for row in other.input_ids] != told


@torch.no_grad()
def test_the_loss_is_that_of_transformers_own_t5() -> None:
    shape = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64, dropout=0.0)
    module = build("t5", "encoder-decoder", shape, VOCABULARY, seed=0).eval()
    batch = DATA.batch(TWO, np.arange(40), ("training-noise", 0), 0)
    (term,) = TWO.loss(module, batch, batch.noise).values()
    read = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    theirs = module(**read, decoder_input_ids=batch.decoder_input_ids, labels=batch.labels).loss
    assert float(term.total) / term.count == pytest.approx(float(theirs), rel=1e-5)
    assert TWO.counts(batch) == {"multitask": term.count}


def test_a_prefix_is_encoded_as_before_its_text() -> None:
    texts = ["translate english to french : the old cat", "sleeps in the sun ."]
    tokenizer = train_tokenizer(texts * 3, 80, sentinels=10)
    known = Vocabulary.from_tokenizer(tokenizer)
    whole, text = (tokenizer(one)["input_ids"] for one in (TRANSLATE + "The cat", "The cat"))
    assert whole == [text[0], *known.ids[TRANSLATE], *text[1:]]
    assert TWO.added_tokens(known) == len(known.ids[TRANSLATE]) > 0


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": ("translation", "masked-lm")}, "multitask.tasks must be among"),
        ({"tasks": ("translation",)}, "prefixes must have one value for each of the 1 tasks"),
        ({"sizes": (1, 2, 3)}, "sizes must have one value for each of the 2 tasks"),
    ],
)
def test_mixtures_that_do_not_fit_are_refused(options, message) -> None:
    with pytest.raises(UserError, match=message):
        MultiTask(**options)


def test_a_vocabulary_without_the_prefix_is_refused() -> None:
    single = MultiTask(tasks=("translation",), prefixes=(TRANSLATE,))
    with pytest.raises(UserError, match=f'"{TRANSLATE}"'):
        single.corrupt(example(5), stream("first"), vocabulary(ids={}))
