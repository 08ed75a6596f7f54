"""dynamics:V4. Both stacks of translation against both language models, under different seeds."""

import numpy as np

from .._allocation import ProfileSimilarity, Stack
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Objective, Reading, baselines
from .._sources import PARAMETER_CONTRIBUTIONS


def _similarity(stack: Stack, objective: Objective, other: Stack) -> ProfileSimilarity:
    return ProfileSimilarity(first=("translation", stack), second=(objective, other))


READS: dict[str, Reading] = {
    "encoder, masked": _similarity("encoder", "masked-lm", "encoder"),
    "encoder, causal": _similarity("encoder", "causal-lm", "decoder"),
    "decoder, causal": _similarity("decoder", "causal-lm", "decoder"),
    "decoder, masked": _similarity("decoder", "masked-lm", "encoder"),
}


def test(curves: Curves) -> list[Condition]:
    gaps = [
        curves["encoder, masked"] - curves["encoder, causal"],
        curves["decoder, causal"] - curves["decoder, masked"],
    ]
    return [
        Condition(
            name="similarity to the language model of its kind, less that to the other",
            values=np.concatenate(gaps, axis=1),
            labels=["translation encoder", "translation decoder"],
            threshold=0.0,
            unit="rank correlation",
        )
    ]


FINDING = Finding(
    id="dynamics:V4",
    claim="A translation encoder learns like a masked LM, its decoder like a causal LM.",
    source=PARAMETER_CONTRIBUTIONS,
    published="shown as maps of layers and components (slides; no number)",
    statistic=(
        "rank correlation of the shares of layers × components under different seeds: of the encoder it is higher with "
        "the "
        "masked LM than with the causal LM, of the decoder the reverse (cross-attention and embeddings left out)"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="shuffled profiles", reads=baselines(READS)),),
    learned=("causal-lm", "masked-lm", "translation"),
)
