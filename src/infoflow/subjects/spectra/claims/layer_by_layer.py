"""Claims about the layers that probe best and the measures that find them: probing:S-1 to S-6."""

import numpy as np

from infoflow.findings._curves import layer_names, spearman
from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, Finding, Given, claim, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, NAMES, TRANSLATION
from infoflow.findings._readings import TOKEN_TASKS, accuracy
from infoflow.findings._sources import Source
from infoflow.findings._table import Reading, Table, untrained
from infoflow.results import Spec

from ..measures import DIME, LAYER_SPECTRUM

LAYER_BY_LAYER = Source(
    "Skean, Arefin, Zhao, Patel, Naghiyev, LeCun and Shwartz-Ziv 2025, Layer by Layer: Uncovering Hidden "
    "Representations in Language Models, ICML (tasks on whole texts)",
    "abstract",
    ours=True,
)


def inside(objective: Spec, number: int) -> Finding:
    """The claim that a layer between the ends probes best, for models of one objective."""
    reads: dict[str, Reading] = {"accuracy": accuracy(objective, TOKEN_TASKS)}

    @claim(
        f"probing:S-{number}",
        f"In a {NAMES[objective]}, an intermediate layer is better for probes than the last layer.",
        source=LAYER_BY_LAYER,
        published="the average over 32 tasks of text embedding is highest at intermediate layers of Transformers and "
        "state-space models",
        statistic="accuracy of a linear probe of word labels: some layer between the ends above both the last layer "
        "and the embeddings, which an untrained model's first layers need not beat",
        reads=reads,
        controls=(
            Control(name="untrained model", reads=untrained(reads)),
            Control(name="control task", reads={"accuracy": accuracy(objective, TOKEN_TASKS, labels="control")}),
        ),
        learned=(objective,),
        given=Given() if objective == MASKED else None,
        minimum_seeds=1,
    )
    def test(curves: Curves) -> list[Condition]:
        """Layers are 0..L."""
        curve = curves["accuracy"]
        between = curve[:, 1:-1]
        return [
            exceeds(
                "accuracy of an intermediate layer above the better one of the embeddings and the last layer",
                between - np.maximum(curve[:, :1], curve[:, -1:]),
                0.0,
                "accuracy",
                layer_names(between.shape[1], 1),
                over="any",
            )
        ]

    return test


def found_by_dime(objective: Spec, number: int) -> Finding:
    """The claim that DiME orders the layers as probes do, for models of one objective."""
    dime = Table(LAYER_SPECTRUM.name, objective).where(measure=DIME).by("layer")
    reads: dict[str, Reading] = {"accuracy": accuracy(objective, TOKEN_TASKS), "dime": dime}

    @claim(
        f"probing:S-{number}",
        f"In a {NAMES[objective]}, DiME, which needs no labels, is higher in layers where probes are better.",
        source=LAYER_BY_LAYER,
        published="no number was read; others report that the layer chosen by DiME is about 3 % better than the last",
        statistic="Spearman correlation over layers of DiME with the accuracy of a linear probe of word labels, "
        "above 0",
        reads=reads,
        controls=(
            Control(name="DiME of the untrained model", reads=reads | untrained({"dime": dime})),
            Control(name="the layer's number instead of DiME", reads=reads, transform=_by_depth, decisive=False),
        ),
        learned=(objective,),
        given=Given() if objective == MASKED else None,
        minimum_seeds=1,
    )
    def test(curves: Curves) -> list[Condition]:
        """Layers are 0..L."""
        correlation = spearman(curves["dime"], curves["accuracy"])
        return [
            exceeds("rank correlation of DiME with accuracy", correlation, 0.0, "Spearman's rho", bounds=CORRELATION)
        ]

    return test


def _by_depth(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return curves | {"dime": np.broadcast_to(np.arange(curves["dime"].shape[1]), curves["dime"].shape)}


S1, S2, S3 = (inside(objective, number) for number, objective in enumerate((MASKED, CAUSAL, TRANSLATION), 1))
S4, S5, S6 = (found_by_dime(objective, number) for number, objective in enumerate((MASKED, CAUSAL, TRANSLATION), 4))
