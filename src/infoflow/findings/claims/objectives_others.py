"""Claims about objectives: O2 to O10."""

from itertools import permutations

import numpy as np

from .. import _model_group as group
from .. import _sources as sources
from .._control import seeds_alone
from .._finding import Condition, Control, Curves, Verdict, claim, exceeds
from .._readings import PROBE, STANDS_IN, operations, parameters, probe, spans_and_words, spans_more_than_words
from .._table import Reading, untrained

_FAMILIES = ("bert", "t5")
_SHARED = (group.DENOISE_FULL, group.DESHUFFLING, group.BART)
_O2_READS: dict[str, Reading] = {
    "translation": probe(group.TRANSLATION, "bert"),
    **{f"{family} {one.name}": probe(one, family) for family in _FAMILIES for one in _SHARED},
}


def _lead_of_two(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The smaller of the leads of two different objectives, one in each family, (N, 1).

    The two objectives are chosen to maximise this lead; it is below 0 if one objective is best in both families.
    """
    leads = [_leads(scores) for scores in (first, second)]
    pairs = permutations(range(len(_SHARED)), 2)
    return np.max([np.minimum(leads[0][:, one], leads[1][:, other]) for one, other in pairs], axis=0)[:, None]


def _leads(scores: np.ndarray) -> np.ndarray:
    """How far each objective exceeds the best of the others, (N, objective)."""
    others = [np.delete(scores, own, axis=1).max(axis=1) for own in range(scores.shape[1])]
    return scores - np.stack(others, axis=1)


@claim(
    "objectives:O2",
    "The architecture determines which objective teaches most, and translation is an effective objective for an "
    f"encoder with a decoder. {STANDS_IN}",
    source=sources.COMPARISON,
    published="the architecture dictates which pretraining objective is optimal; multilingual translation is a very "
    "effective one under the right conditions (no number in the abstract)",
    statistic=f"{PROBE}: of denoising, deshuffling and BART, one is best on BERT's blocks and another on T5's; "
    "translation is above BART on BERT's blocks. The stacks of an objective cannot be varied",
    reads=_O2_READS,
    controls=(
        seeds_alone(
            _O2_READS,
            *({f"{family} {one.name}": one.name for one in _SHARED} for family in _FAMILIES),
            {"translation": group.BART.name},
        ),
        Control("untrained models", untrained(_O2_READS)),
    ),
)
def o2(curves: Curves) -> list[Condition]:
    """The best of three denoising objectives in two families of blocks, with translation for comparison.

    The source compares architectures in the sense of stacks (encoder, decoder, both). Here each objective has the same
    stacks in all families, so only the family of blocks can vary. These tables therefore cannot show that an objective
    is best with some stacks and not with others.
    """
    scores = {
        family: np.concatenate([curves[f"{family} {one.name}"] for one in _SHARED], axis=1) for family in _FAMILIES
    }
    return [
        exceeds(
            "lead of the best objective on BERT's blocks, or of another one on T5's, whichever is less",
            _lead_of_two(*scores.values()),
            0.0,
            "share",
        ),
        exceeds(
            "translation over BART, both on BERT's blocks", curves["translation"] - curves["bert bart"], 0.0, "share"
        ),
    ]


_EQUAL = 0.1

SCORES: dict[str, Reading] = {"electra": probe(group.ELECTRA), "masked": probe(group.MASKED)}
COST: dict[str, Reading] = {
    "electra operations": operations(group.ELECTRA),
    "masked operations": operations(group.MASKED),
}


def hinders(curves: Curves, verdict: Verdict) -> str | None:
    """Why the operation counts rule out the verdict."""
    ratio = float(np.asarray(curves["electra operations"] / curves["masked operations"])[0, 0])
    if (ratio > 1 + _EQUAL and verdict != "fails") or (ratio < 1 - _EQUAL and verdict != "holds"):
        return (
            f"ELECTRA's training took {ratio:.2f} times the operations of the masked LM's, so unequal compute may "
            "explain the difference"
        )
    return None


@claim(
    "objectives:O3",
    "Detecting replaced tokens teaches an encoder more than filling in masked ones, at equal size, data and "
    f"compute. {STANDS_IN}",
    source=sources.ELECTRA_PAPER,
    published="representations outperform BERT's given the same model size, data, and compute; the gains are "
    "particularly strong for small models",
    statistic=f"{PROBE}: ELECTRA's discriminator lies above the masked LM. There is no verdict if the operations "
    "differ by over a tenth in its favour. To compare two sizes, run two studies",
    reads=SCORES | COST,
    controls=(seeds_alone(SCORES | COST, "electra", "masked"), Control("untrained models", untrained(SCORES) | COST)),
    hinders=hinders,
)
def o3(curves: Curves) -> list[Condition]:
    """ELECTRA's discriminator compared with the masked LM, and the cost of both.

    Models of a study have equal updates, not equal operations. There is no verdict if ELECTRA costs more and scores
    better, or costs less and scores worse, since computation may be the reason. A worse score at a higher cost, or a
    better one at a lower cost, can be judged without equal costs. A study has one size of model: to see whether the
    gain is largest for small models, compare two studies by hand.
    """
    return [exceeds("ELECTRA over the masked LM", curves["electra"] - curves["masked"], 0.0, "share")]


_O4_READS: dict[str, Reading] = {
    "electra": probe(group.ELECTRA),
    "selected": probe(group.ELECTRA_SELECTED),
    "masked": probe(group.MASKED),
}


@claim(
    "objectives:O4",
    "ELECTRA's advantage comes from its loss on all tokens: with a loss on the selected tokens only, it loses "
    f"most of the advantage. {STANDS_IN}",
    source=sources.ELECTRA_PAPER,
    published="the gain is due to the loss being defined over all input tokens rather than just the masked subset",
    statistic=f"{PROBE}: ELECTRA lies above the masked LM, and electra+selected (selected_only = true) lies below "
    "ELECTRA by more than half of that",
    reads=_O4_READS,
    controls=(
        seeds_alone(_O4_READS, "electra", "selected", "masked"),
        Control("untrained models", untrained(_O4_READS)),
    ),
    learned=(group.ELECTRA, group.MASKED),
)
def o4(curves: Curves) -> list[Condition]:
    gain, lost = curves["electra"] - curves["masked"], curves["electra"] - curves["selected"]
    return [
        exceeds("ELECTRA over the masked LM", gain, 0.0, "share"),
        exceeds("loss with selected tokens only, minus half of ELECTRA's gain", lost - gain / 2, 0.0, "share"),
    ]


_O5_READS: dict[str, Reading] = {"bart": probe(group.BART), **{one.variant: probe(one) for one in group.BART_NOISES}}


@claim(
    "objectives:O5",
    f"Span infilling with permuted sentences teaches the most of BART's noising schemes. {STANDS_IN}",
    source=sources.BART_PAPER,
    published="the best performance by both randomly shuffling the order of the sentences and in-filling spans",
    statistic=f"{PROBE}: bart lies above each of bart+masking, bart+deletion, bart+infilling, bart+permutation and "
    "bart+rotation; permutation needs a plan with text = windows",
    reads=_O5_READS,
    controls=(
        seeds_alone(_O5_READS, "bart", tuple(one.variant for one in group.BART_NOISES)),
        Control("untrained models", untrained(_O5_READS)),
    ),
)
def o5(curves: Curves) -> list[Condition]:
    names = [one.variant for one in group.BART_NOISES]
    gains = np.concatenate([curves["bart"] - curves[name] for name in names], axis=1)
    return [exceeds("infilling with permutation over one noise alone", gains, 0.0, "share", names)]


_LEAST = -0.01

_O6_READS: dict[str, Reading] = {
    "dynamic": probe(group.MASKED),
    "static": probe(group.STATIC),
    "dynamic pairs": probe(group.NEXT_SENTENCE),
    "static pairs": probe(group.NEXT_SENTENCE_STATIC),
}


@claim(
    "objectives:O6",
    "Masks redrawn in each epoch teach a masked LM at least as much as static ones, and dropping next-sentence "
    f"prediction costs nothing. {STANDS_IN}",
    source=sources.ROBERTA,
    published="dynamic masking is comparable or slightly better than static; removing NSP matches or slightly "
    "improves downstream performance (unverified)",
    statistic=f"{PROBE}, of masked-lm and masked-lm-nsp, each plain and +static: neither dynamic masks nor dropping "
    "next-sentence prediction loses a point (main effects)",
    reads=_O6_READS,
    controls=(
        Control(
            "random neighbours instead of the masked LM with dynamic masks",
            _O6_READS | {"dynamic": _O6_READS["dynamic"].changed(number="baseline")},
        ),
    ),
)
def o6(curves: Curves) -> list[Condition]:
    masks = [curves["dynamic"] - curves["static"], curves["dynamic pairs"] - curves["static pairs"]]
    pairs = [curves["dynamic"] - curves["dynamic pairs"], curves["static"] - curves["static pairs"]]
    return [
        exceeds("dynamic masks minus static ones", np.mean(masks, axis=0), _LEAST, "share"),
        exceeds("without next-sentence prediction minus with it", np.mean(pairs, axis=0), _LEAST, "share"),
    ]


_O7_READS = spans_and_words(group.SENTENCE_ORDER, group.NEXT_SENTENCE)


@claim(
    "objectives:O7",
    "Predicting the order of sentences helps multi-sentence tasks more than predicting whether one sentence "
    "follows another. Tasks on pairs of sentences are not trained: coreference stands in for them, word-level "
    "tags for other tasks.",
    source=sources.ALBERT_PAPER,
    published="a loss on coherence between sentences consistently helps tasks with multi-sentence inputs (no number)",
    statistic="share of mentions whose antecedent the best head attends to: sentence order lies above next sentence, "
    f"and by more than in the tags of words ({PROBE})",
    reads=_O7_READS,
    controls=(
        seeds_alone(_O7_READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control("untrained models", untrained(_O7_READS)),
    ),
)
def o7(curves: Curves) -> list[Condition]:
    """Whether sentence order, compared with next sentence, improves coreference more than word tags.

    Tasks on pairs of sentences are not trained. Coreference stands in for them, since it takes more than a word's
    neighbourhood, and word tags stand in for tasks on one sentence. Coreference is measured within sentences, so no
    table covers what the claim says about several sentences.
    """
    return spans_more_than_words(curves, "sentence order over next sentence")


_O8_READS = spans_and_words(group.SPANBERT, group.MASKED)


@claim(
    "objectives:O8",
    "Masking spans and predicting them from their boundaries helps mainly on span tasks. End tasks are not "
    "trained: coreference stands in for span tasks, word-level tags for others.",
    source=sources.SPANBERT_PAPER.beyond,
    published="coreference 79.6 against 77.1 for BERT, SQuAD 1.1 94.6 against 91.3 (large models, README; that the "
    "gains are mainly in such tasks is unverified)",
    statistic="share of mentions whose antecedent the best head attends to: SpanBERT lies above the masked LM, and by "
    f"more than in the tags of words ({PROBE})",
    reads=_O8_READS,
    controls=(
        seeds_alone(_O8_READS, *({f"{which} {what}": what for what in ("spans", "words")} for which in ("new", "old"))),
        Control("untrained models", untrained(_O8_READS)),
    ),
)
def o8(curves: Curves) -> list[Condition]:
    return spans_more_than_words(curves, "SpanBERT over the masked LM")


_O9_READS: dict[str, Reading] = {
    "random tokens": probe(group.DENOISE_FULL),
    "masks": probe(group.DENOISE_MASK),
    "deshuffling": probe(group.DESHUFFLING),
    "language model": probe(group.DECODER_LM),
}


@claim(
    "objectives:O9",
    "Denoising teaches more than language modelling and deshuffling, and the kind of corruption matters little. "
    f"{STANDS_IN}",
    source=sources.T5_PAPER,
    published="denoising outperforms language modelling and deshuffling; variants of denoising perform similarly "
    "(unverified)",
    statistic=f"{PROBE}, encoders of models whose decoders generate the whole text: denoise-full and denoise-mask lie "
    "above deshuffling and seq2seq-lm, and are less than half of the smallest gain apart. Objectives that generate "
    "only parts are not measured",
    reads=_O9_READS,
    controls=(
        seeds_alone(_O9_READS, "random tokens", "masks", ("deshuffling", "language model")),
        Control("untrained models", untrained(_O9_READS)),
    ),
)
def o9(curves: Curves) -> list[Condition]:
    """Compare text-to-text objectives whose decoders write the whole text.

    Objectives whose decoders write only parts (replace-spans, drop-tokens, span-corruption, prefix-lm) have no decoder
    state for each token of the text and are not measured, so only two of the corruption variants remain.
    """
    noises, others = ("random tokens", "masks"), ("deshuffling", "language model")
    gains = {(noise, other): curves[noise] - curves[other] for noise in noises for other in others}
    every = np.concatenate(list(gains.values()), axis=1)
    apart = np.abs(curves["random tokens"] - curves["masks"])
    least = every.min(axis=1, keepdims=True)
    return [
        exceeds("denoising over the others", every, 0.0, "share", [f"{a} over {b}" for a, b in gains]),
        exceeds("half of the least of these gains minus the gap between two noises", least / 2 - apart, 0.0, "share"),
    ]


_O10_READS: dict[str, Reading] = {
    "student": probe(group.DISTILLATION, beyond_chance=True),
    "teacher": probe(group.MASKED, beyond_chance=True),
    "student parameters": parameters(group.DISTILLATION),
    "teacher parameters": parameters(group.MASKED),
}


@claim(
    "objectives:O10",
    f"A student with half the layers keeps nearly everything its teacher knows, with far fewer parameters. {STANDS_IN}",
    source=sources.DISTILBERT,
    published="40 % fewer parameters, over 95 % (97 %) of BERT's performances, 60 % faster",
    statistic=f"{PROBE}, minus that of random neighbours: the student keeps over 95 % of the teacher's score and has a "
    "quarter fewer parameters (embeddings weigh more here than in the larger published model). Speed is not measured",
    reads=_O10_READS,
    controls=(
        Control(
            "the student as initialised against the trained teacher",
            _O10_READS | {"student": _O10_READS["student"].changed(trained=False)},
        ),
    ),
)
def o10(curves: Curves) -> list[Condition]:
    kept = curves["student"] / curves["teacher"]
    return [
        exceeds(
            "share of the teacher's score beyond chance that the student keeps", kept, 0.95, "share", published=0.97
        ),
        exceeds(
            "share of the teacher's parameters that the student does without",
            1 - curves["student parameters"] / curves["teacher parameters"],
            0.25,
            "share",
            published=0.4,
            alone=False,  # by construction
        ),
    ]
