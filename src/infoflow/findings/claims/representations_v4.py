"""representations:V-4. Layers are 0..L; the masked LM sees inputs corrupted as in training."""

from .._condition import Condition, exceeds, stays_below
from .._curves import LANGUAGE_MODEL_INFORMATION as READS
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED
from .._shapes import depth_correlation, total_fall
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

MODELS = {"causal": "causal LM", "masked": "masked LM"}
LEAST_RISE = {"causal": 0.13, "masked": 0.4}
LEAST_CORRELATION = 0.9
RISE = {"causal": 0.535, "masked": 1.655}
CORRELATIONS = {"causal": (1.0, -1.0), "masked": (0.964, -0.991)}  # of the published curves: output, input


def test(curves: Curves) -> list[Condition]:
    return [condition for model in MODELS for condition in _conditions(curves, model)]


def _conditions(curves: Curves, model: str) -> list[Condition]:
    source, target, name = curves[f"{model} input"], curves[f"{model} output"], MODELS[model]
    return [
        exceeds(
            f"rise of the information about the output, {name}",
            -total_fall(target),
            LEAST_RISE[model],
            "nats",
            published=RISE[model],
        ),
        exceeds(
            f"rank correlation of depth and information about the output, {name}",
            depth_correlation(target),
            LEAST_CORRELATION,
            "Spearman's rho",
            published=CORRELATIONS[model][0],
        ),
        stays_below(
            f"rank correlation of depth and information about the input, {name}",
            depth_correlation(source),
            -LEAST_CORRELATION,
            "Spearman's rho",
            published=CORRELATIONS[model][1],
        ),
    ]


FINDING = Finding(
    id="representations:V-4",
    claim="Language models compress, then predict: with depth they lose the input token and gain the output token.",
    source=BOTTOM_UP,
    published=(
        "information about the output rises by .535 nats (causal LM) and 1.655 (masked LM, as in training), while "
        "that about the input falls by 1.33 and 5.95"
    ),
    statistic=(
        "causal LM and masked LM (inputs as in training): Spearman with depth below -.9 for the input and above .9 "
        "for the output token; the latter rises by over .13 and .4 nats"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="shuffled labels", reads=baselines(READS)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(CAUSAL, MASKED),
    minimum_seeds=1,
)
