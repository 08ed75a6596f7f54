"""objectives:O9. Text-to-text objectives that write the whole text.

Those that write parts of it (replace-spans, drop-tokens, span-corruption, prefix-lm) have no state for each token of
the text in their decoder and are not measured, so that of corruption variants two remain.
"""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._sources import T5_PAPER
from .._stand_ins import PROBE, STANDS_IN, probe
from .._table import Reading, untrained
from .._zoo import DECODER_LM, DENOISE_FULL, DENOISE_MASK, DESHUFFLING

READS: dict[str, Reading] = {
    "random tokens": probe(DENOISE_FULL),
    "masks": probe(DENOISE_MASK),
    "deshuffling": probe(DESHUFFLING),
    "language model": probe(DECODER_LM),
}


def test(curves: Curves) -> list[Condition]:
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


def _least(gains: np.ndarray) -> np.ndarray:
    return gains.min(axis=1, keepdims=True)


FINDING = Finding(
    id="objectives:O9",
    claim="Denoising teaches more than a language model's objective and than deshuffling, and how the text is "
    f"corrupted matters little. {STANDS_IN}",
    source=T5_PAPER,
    published="denoising outperforms language modelling and deshuffling; variants of denoising perform similarly "
    "(unverified)",
    statistic=(
        f"{PROBE}, encoders beside decoders that write the whole text: denoise-full and denoise-mask above deshuffling "
        "and seq2seq-lm, and less than half of the least gain apart. Objectives that write parts are not measured"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "random tokens", "masks", ("deshuffling", "language model")),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(DENOISE_FULL, DENOISE_MASK, DESHUFFLING, DECODER_LM),
)
