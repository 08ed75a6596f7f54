"""Claims about objectives: O6, O7, O8, O9, O10."""

import numpy as np

from .._control import seeds_alone
from .._finding import Condition, Control, Curves, claim, exceeds
from .._model_group import (
    DECODER_LM,
    DENOISE_FULL,
    DENOISE_MASK,
    DESHUFFLING,
    DISTILLATION,
    MASKED,
    NEXT_SENTENCE,
    NEXT_SENTENCE_STATIC,
    SENTENCE_ORDER,
    SPANBERT,
    STATIC,
)
from .._readings import PROBE, STANDS_IN, parameters, probe, spans_and_words, spans_more_than_words
from .._sources import ALBERT_PAPER, DISTILBERT, ROBERTA, SPANBERT_PAPER, T5_PAPER
from .._table import Reading, untrained

_LEAST = -0.01


_O6_READS: dict[str, Reading] = {
    "dynamic": probe(MASKED),
    "static": probe(STATIC),
    "dynamic pairs": probe(NEXT_SENTENCE),
    "static pairs": probe(NEXT_SENTENCE_STATIC),
}


@claim(
    "objectives:O6",
    "Masks redrawn in each epoch teach a masked LM at least as much as static ones, and dropping next-sentence "
    f"prediction costs nothing. {STANDS_IN}",
    source=ROBERTA,
    published="dynamic masking is comparable or slightly better than static; removing NSP matches or slightly "
    "improves downstream performance (unverified)",
    statistic=f"{PROBE}, of masked-lm and masked-lm-nsp, each plain and +static: main effects of dynamic masks and of "
    "dropping next-sentence prediction; neither loses a point",
    reads=_O6_READS,
    controls=(
        Control(
            name="random neighbours instead of the masked LM with dynamic masks",
            reads=_O6_READS | {"dynamic": _O6_READS["dynamic"].changed(number="baseline")},
        ),
    ),
    learned=(MASKED, STATIC, NEXT_SENTENCE, NEXT_SENTENCE_STATIC),
)
def o6(curves: Curves) -> list[Condition]:
    """Masks drawn anew or once, with and without next-sentence prediction: a two by two design."""
    masks = [curves["dynamic"] - curves["static"], curves["dynamic pairs"] - curves["static pairs"]]
    pairs = [curves["dynamic"] - curves["dynamic pairs"], curves["static"] - curves["static pairs"]]
    return [
        exceeds("dynamic masks less static ones", np.mean(masks, axis=0), _LEAST, "share"),
        exceeds("without next-sentence prediction less with it", np.mean(pairs, axis=0), _LEAST, "share"),
    ]


_O7_READS = spans_and_words(SENTENCE_ORDER, NEXT_SENTENCE)


@claim(
    "objectives:O7",
    "Predicting the order of sentences helps multi-sentence tasks more than predicting whether one sentence "
    "follows another. Tasks on pairs of sentences are not trained: coreference stands in for them, word-level "
    "tags for other tasks.",
    source=ALBERT_PAPER,
    published="a loss on coherence between sentences consistently helps tasks with multi-sentence inputs (no number)",
    statistic="share of mentions whose antecedent the best head attends to: with sentence order above next "
    "sentence, and by "
    f"more than in the tags of words ({PROBE})",
    reads=_O7_READS,
    controls=(
        seeds_alone(_O7_READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control(name="untrained models", reads=untrained(_O7_READS)),
    ),
    learned=(SENTENCE_ORDER, NEXT_SENTENCE),
)
def o7(curves: Curves) -> list[Condition]:
    """Sentence order compared with next sentence: how each improves coreference more than words.

    Tasks on pairs of sentences are not trained; coreference, which takes more than a word's neighbourhood, stands in
    for them, and word tags for tasks on one sentence. The measure looks within sentences: no table covers what the
    claim says about several sentences at once.
    """
    return spans_more_than_words(curves, "sentence order over next sentence")


_O8_READS = spans_and_words(SPANBERT, MASKED)


@claim(
    "objectives:O8",
    "Masking spans and predicting them from their boundaries helps mainly on span tasks. End tasks are not "
    "trained: coreference stands in for span tasks, word-level tags for others.",
    source=SPANBERT_PAPER,
    published="coreference 79.6 against 77.1 for BERT, SQuAD 1.1 94.6 against 91.3 (large models, README; that the "
    "gains are mainly in such tasks is unverified)",
    statistic="share of mentions whose antecedent the best head attends to: SpanBERT above the masked LM, and by "
    "more than "
    f"in the tags of words ({PROBE})",
    reads=_O8_READS,
    controls=(
        seeds_alone(_O8_READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control(name="untrained models", reads=untrained(_O8_READS)),
    ),
    learned=(SPANBERT, MASKED),
)
def o8(curves: Curves) -> list[Condition]:
    """SpanBERT compared with the masked LM: coreference, a task on spans, and word tags."""
    return spans_more_than_words(curves, "SpanBERT over the masked LM")


_O9_READS: dict[str, Reading] = {
    "random tokens": probe(DENOISE_FULL),
    "masks": probe(DENOISE_MASK),
    "deshuffling": probe(DESHUFFLING),
    "language model": probe(DECODER_LM),
}


def _least(gains: np.ndarray) -> np.ndarray:
    return gains.min(axis=1, keepdims=True)


@claim(
    "objectives:O9",
    "Denoising teaches more than language modelling and deshuffling, and the kind of corruption matters little. "
    f"{STANDS_IN}",
    source=T5_PAPER,
    published="denoising outperforms language modelling and deshuffling; variants of denoising perform similarly "
    "(unverified)",
    statistic=f"{PROBE}, encoders of models whose decoders generate the whole text: denoise-full and "
    "denoise-mask above "
    "deshuffling and seq2seq-lm, and less than half of the smallest gain apart. Objectives that generate "
    "only parts are not measured",
    reads=_O9_READS,
    controls=(
        seeds_alone(_O9_READS, "random tokens", "masks", ("deshuffling", "language model")),
        Control(name="untrained models", reads=untrained(_O9_READS)),
    ),
    learned=(DENOISE_FULL, DENOISE_MASK, DESHUFFLING, DECODER_LM),
)
def o9(curves: Curves) -> list[Condition]:
    """Text-to-text objectives that write the whole text.

    Those that write parts of it (replace-spans, drop-tokens, span-corruption, prefix-lm) have no decoder state for each
    token of the text and are not measured, so that two of the corruption variants remain.
    """
    noises, others = ("random tokens", "masks"), ("deshuffling", "language model")
    gains = {(noise, other): curves[noise] - curves[other] for noise in noises for other in others}
    every = np.concatenate(list(gains.values()), axis=1)
    apart = np.abs(curves["random tokens"] - curves["masks"])
    return [
        exceeds("denoising over the others", every, 0.0, "share", [f"{a} over {b}" for a, b in gains]),
        exceeds(
            "half of the least of these gains, less what two noises differ by", _least(every) / 2 - apart, 0.0, "share"
        ),
    ]


_O10_READS: dict[str, Reading] = {
    "student": probe(DISTILLATION, beyond_chance=True),
    "teacher": probe(MASKED, beyond_chance=True),
    "student parameters": parameters(DISTILLATION),
    "teacher parameters": parameters(MASKED),
}


@claim(
    "objectives:O10",
    f"A student with half the layers keeps nearly everything its teacher knows, with far fewer parameters. {STANDS_IN}",
    source=DISTILBERT,
    published="40 % fewer parameters, over 95 % (97 %) of BERT's performances, 60 % faster",
    statistic=f"{PROBE}, minus that of random neighbours: the student above 95 % of the teacher, and it has a quarter "
    "fewer parameters (at small sizes embeddings weigh more than in the published model). Speed is not "
    "measured",
    reads=_O10_READS,
    controls=(
        Control(
            name="the student as initialised against the trained teacher",
            reads=_O10_READS | {"student": _O10_READS["student"].changed(trained=False)},
        ),
    ),
    learned=(DISTILLATION, MASKED),
)
def o10(curves: Curves) -> list[Condition]:
    """The distilled model compared with its teacher: what it keeps, and how many parameters it has.

    No table records how much faster it runs: parameters and layers are counted, seconds of inference are not.
    """
    kept = curves["student"] / curves["teacher"]
    return [
        exceeds(
            "share of the teacher's score beyond chance that the student keeps", kept, 0.95, "share", published=0.97
        ),
        exceeds(
            "share of the teacher's parameters that it goes without",
            1 - curves["student parameters"] / curves["teacher parameters"],
            0.25,
            "share",
            published=0.4,
            alone=False,  # by construction
        ),
    ]
