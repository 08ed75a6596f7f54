"""dynamics:V4. Both stacks of translation against both language models, under different seeds."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, profile_similarity
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading, baselines

READS: dict[str, Reading] = {
    "encoder, masked": profile_similarity(TRANSLATION, MASKED, "encoder", "encoder"),
    "encoder, causal": profile_similarity(TRANSLATION, CAUSAL, "encoder", "decoder"),
    "decoder, causal": profile_similarity(TRANSLATION, CAUSAL, "decoder", "decoder"),
    "decoder, masked": profile_similarity(TRANSLATION, MASKED, "decoder", "encoder"),
}


def test(curves: Curves) -> list[Condition]:
    gaps = [
        curves["encoder, masked"] - curves["encoder, causal"],
        curves["decoder, causal"] - curves["decoder, masked"],
    ]
    return [
        exceeds(
            "similarity to the language model of its kind, less that to the other",
            np.concatenate(gaps, axis=1),
            0.0,
            "rank correlation",
            ["translation encoder", "translation decoder"],
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
    controls=(
        seeds_alone(READS, ("encoder, masked", "decoder, causal"), ("encoder, causal", "decoder, masked")),
        Control(name="shuffled profiles", reads=baselines(READS), decisive=False),  # expected: none is alike
    ),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
