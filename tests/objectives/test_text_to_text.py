"""T5's family: the noise of the released preprocessors, and how input and target are written."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import (
    ORDINARY,
    SENTINELS,
    VOCABULARY,
    check_pure,
    corrupted,
    distinct,
    framed,
    mixed,
    same_distribution,
    vocabulary,
)
from scipy.stats import chisquare

from infoflow.foundation import UserError, stream
from infoflow.objectives import (
    DenoiseFull,
    DenoiseMask,
    Deshuffling,
    DropTokens,
    Example,
    PrefixLM,
    ReplaceSpans,
    Seq2SeqLM,
    SpanCorruption,
)

FAMILY = [Seq2SeqLM, PrefixLM, DenoiseFull, DenoiseMask, Deshuffling, ReplaceSpans, DropTokens, SpanCorruption]
WHOLE = (Seq2SeqLM, DenoiseFull, DenoiseMask, Deshuffling)  # predict the whole text


def sides(one) -> tuple[list[int], list[int]]:
    """What the encoder reads and what the decoder predicts, without the frame."""
    assert one.input_ids[0] == one["decoder_input_ids"][0] == 2
    assert one.input_ids[-1] == one.labels[-1] == 3
    assert one["decoder_input_ids"][1:].tolist() == one.labels[:-1].tolist()
    return one.input_ids[1:-1].tolist(), one.labels[:-1].tolist()


def put_together(source: list[int], target: list[int]) -> list[int]:
    """The clean text of an input and a target with sentinels, where numbers agree: each span at its sentinel."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    return [token for one in source for token in (spans[one] if one in SENTINELS else [one])]


def written(tokens: list[int], noise: list[bool]) -> list[int]:
    """`noise_span_to_unique_sentinel`, token by token."""
    found, number = [], 0
    for place, token in enumerate(tokens):
        if not noise[place]:
            found.append(token)
        elif place == 0 or not noise[place - 1]:
            found.append(SENTINELS[number])
            number += 1
    return found


def random_spans(length: int, density: float, mean: float, generator: np.random.Generator) -> list[bool]:
    """`random_spans_noise_mask` of T5: shuffled cuts, rest and noise by turns."""
    length_seen = max(length, 2)
    num_noise = min(max(round(length_seen * density), 1), length_seen - 1)
    num_spans = max(round(num_noise / mean), 1)

    def parts(total: int) -> list[int]:
        first_in_segment = [True] * (num_spans - 1) + [False] * (total - num_spans)
        generator.shuffle(first_in_segment)
        found = [1]
        for first in first_in_segment:
            if first:
                found.append(1)
            else:
                found[-1] += 1
        return found

    noise, rest = parts(num_noise), parts(length_seen - num_noise)
    mask: list[bool] = []
    for visible, hidden in zip(rest, noise, strict=True):
        mask += [False] * visible + [True] * hidden
    return mask[:length]


def lengths_of_runs(mask) -> list[int]:
    found, run = [], 0
    for noise in [*mask, False]:
        if noise:
            run += 1
        elif run:
            found.append(run)
            run = 0
    return found


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 90), st.integers(0, 10**6), st.sampled_from(FAMILY))
def test_input_and_target_together_are_the_clean_text(length, seed, kind) -> None:
    tokens = mixed(length, seed)
    text = tokens[1:-1].tolist()
    objective = kind(density=0.15) if "density" in kind.__dataclass_fields__ else kind()
    result = check_pure(objective, Example(texts=(tokens,)), seed)
    source, target = sides(result)
    if kind in (SpanCorruption, ReplaceSpans):
        assert result.selected.tolist() == [token in SENTINELS for token in result.input_ids.tolist()]
    if kind in WHOLE:
        assert target == text
    if kind is Seq2SeqLM:
        assert source == []
    if kind is PrefixLM:
        assert source + target == text
        assert min(len(source), len(target)) >= (1 if length > 1 else 0)
    if kind is Deshuffling:
        assert sorted(source) == sorted(text)
    if kind in (DenoiseFull, DenoiseMask):
        assert len(source) == length
    if kind is DropTokens:
        assert Counter(source) + Counter(target) == Counter(text)
        for part in (source, target):
            remaining = iter(text)
            assert all(token in remaining for token in part)  # in the text's order
    if kind is SpanCorruption and length > 1:
        assert put_together(source, target) == text
        assert [t for t in source if t in SENTINELS] == [t for t in target if t in SENTINELS]
        assert source[0] == text[0]
        assert source[-1] in SENTINELS
    if kind is ReplaceSpans and target and target[0] in SENTINELS:
        assert put_together(source, target)[: len(text)] == text


def test_the_published_example_of_sentinels() -> None:
    """a b c d e f g h with noise c d g: a b S0 e f S1 h, and S0 c d S1 g S2, by the code that objectives agree with."""
    a, b, c, d, e, f, g, h = range(10, 18)
    text, noise = [a, b, c, d, e, f, g, h], [False, False, True, True, False, False, True, False]
    s0, s1, s2 = 119, 118, 117
    assert written(text, noise) == [a, b, s0, e, f, s1, h]
    assert written(text, [not one for one in noise]) == [s0, c, d, s1, g, s2]


def test_at_512_there_are_77_noise_tokens_in_26_spans() -> None:
    tokens, lengths = framed(*[10] * 512), np.zeros(78)
    for one in corrupted(SpanCorruption(), tokens, 400):
        source, target = sides(one)
        runs = lengths_of_runs([token not in SENTINELS for token in target])
        assert (sum(runs), len(runs), len(source)) == (77, 26, 512 - 77 + 26)
        assert source[0] == 10
        assert source[-1] in SENTINELS
        np.add.at(lengths, runs, 1)
    assert round(77 / 26, 2) == 2.96
    assert (lengths / lengths.sum())[1:5] == pytest.approx([0.331, 0.223, 0.152, 0.099], abs=0.015)
    # Compositions of 77 into 26 parts, all equally likely: P(1) = 25 / 76 and so on.
    assert lengths[1] / lengths.sum() == pytest.approx(25 / 76, abs=0.015)


@pytest.mark.parametrize(
    ("length", "density", "mean"), [(12, 0.3, 2.0), (20, 0.15, 3.0), (8, 0.5, 1.0), (2, 0.15, 3.0)]
)
def test_spans_are_distributed_as_in_the_released_code(length, density, mean) -> None:
    tokens = distinct(length)
    text = tokens[1:-1].tolist()

    def explicit(generator: np.random.Generator) -> tuple[int, ...]:
        return tuple(written(text, random_spans(length, density, mean, generator)))

    objective = SpanCorruption(density=density, mean_length=mean)
    same_distribution(objective, tokens, explicit, lambda one: tuple(sides(one)[0]), times=2000)


@pytest.mark.parametrize("kind", [DenoiseMask, DropTokens, ReplaceSpans])
def test_independent_noise_is_written_as_in_the_released_code(kind) -> None:
    tokens = distinct(6)
    text = tokens[1:-1].tolist()

    def explicit(generator: np.random.Generator) -> tuple:
        noise = [generator.random() < 0.3 for _ in text]
        if kind is DenoiseMask:
            return tuple(119 if hidden else token for token, hidden in zip(text, noise, strict=True)), tuple(text)
        if kind is DropTokens:
            kept = tuple(token for token, hidden in zip(text, noise, strict=True) if not hidden)
            return kept, tuple(token for token in text if token not in kept)
        target = written(text, [not hidden for hidden in noise]) if any(noise) else []
        return tuple(written(text, noise)), tuple(target)

    same_distribution(kind(density=0.3), tokens, explicit, lambda one: tuple(map(tuple, sides(one))), times=2000)


def test_an_empty_mask_leaves_the_end_alone() -> None:
    for kind in (DropTokens, ReplaceSpans):
        (one,) = corrupted(kind(density=0.0), distinct(6), 1)
        source, target = sides(one)
        assert source == distinct(6)[1:-1].tolist()
        assert target == []


def test_nine_tenths_of_the_noise_is_one_sentinel_and_the_rest_random() -> None:
    found = Counter()
    for one in corrupted(DenoiseFull(density=0.5), framed(*[10] * 20), 1500):
        source, _ = sides(one)
        found.update("sentinel" if t == 119 else "kept" if t == 10 else "random" for t in source)
        assert set(source) - {119} <= set(ORDINARY)
    swapped = 0.5 * 0.1 * 84 / 85
    shares = {"sentinel": 0.45, "random": swapped, "kept": 0.55 - swapped}
    assert chisquare([found[name] for name in shares], [found.total() * p for p in shares.values()]).pvalue > 1e-3


def test_prefixes_and_orders_are_uniform() -> None:
    cuts = Counter(len(sides(one)[0]) for one in corrupted(PrefixLM(), distinct(9), 3000))
    assert set(cuts) == set(range(1, 9))
    assert chisquare(list(cuts.values())).pvalue > 1e-3
    orders = Counter(tuple(sides(one)[0]) for one in corrupted(Deshuffling(), distinct(4), 3000))
    assert len(orders) == 24
    assert chisquare(list(orders.values())).pvalue > 1e-3


def test_as_many_sentinels_as_told_suffice() -> None:
    generator = stream("sentinels")
    for length in (1, 2, 3, 10, 40, 90):
        for objective in (SpanCorruption(), ReplaceSpans(), DenoiseFull(), DenoiseMask()):
            enough = vocabulary(sentinels=SENTINELS[: objective.num_sentinels(length)])
            for _ in range(20):
                objective.corrupt(Example(texts=(mixed(length),)), generator, enough)
    assert [kind().num_sentinels(50) for kind in (Seq2SeqLM, PrefixLM, Deshuffling, DropTokens)] == [0] * 4


def test_too_few_sentinels_and_more_spans_than_tokens_are_refused() -> None:
    example, generator = Example(texts=(mixed(60),)), stream("refused")
    with pytest.raises(UserError, match=r"sentinel"):
        SpanCorruption().corrupt(example, generator, vocabulary(sentinels=SENTINELS[:2]))
    for objective in (DenoiseFull(), DenoiseMask(), SpanCorruption(), ReplaceSpans()):
        with pytest.raises(UserError, match="sentinel"):
            objective.corrupt(example, generator, vocabulary(sentinels=()))
    with pytest.raises(UserError, match="other tokens to separate them"):
        SpanCorruption(density=0.8, mean_length=1.0).corrupt(example, generator, VOCABULARY)
