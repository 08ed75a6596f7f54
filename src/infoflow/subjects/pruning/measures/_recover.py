"""Further training of a pruned model, so that the rest adapts to the removed heads."""

from pathlib import Path

from infoflow.foundation import UserError, digest
from infoflow.heads import HeadSet, ablate
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.training import TrainConfig, TrainingData, train

from ._freezing import only_training


def recover(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    config: TrainConfig,
    out: Path | str,
    *,
    removed: HeadSet,
    freeze_decoder: bool = False,
) -> Path:
    """Continue training a model without the removed heads, with the original loss: no gates, no penalty.

    After an interruption, another call with the same arguments and initial weights continues; a finished run is read
    from disk.

    Args:
        model: With its initial weights; they change. The heads stay in it: ablate them whenever it is used.
        objective: Its training objective.
        data: Training data.
        config: Settings of this training. A rate as high as in the first training that falls again ("learning-rate
            rewinding") recovers more than the low constant rate for learned gates.
        out: Holds a folder for each choice of heads and of frozen parts.
        removed: Heads whose output is 0 throughout.
        freeze_decoder: Train only the encoder of an encoder–decoder, as `learn_gates` does for encoder heads.

    Returns:
        The folder of the run.

    Raises:
        UserError: The folder holds a training with other settings or initial weights; or there is no decoder to freeze.

    Source: [@renda2020], who compare rates and initial weights for pruned single weights and channels of convolutions;
    we know of no published result for heads.
    """
    if freeze_decoder and len(model.anatomy.stacks) == 1:
        raise UserError(f"freeze_decoder needs an encoder-decoder. Got {model.name}, which has a single stack.")
    kept = digest([sorted(removed), freeze_decoder])[:8]
    folder = Path(out) / f"without-{len(removed)}-{kept}"
    with only_training(model, ["encoder"], "auto" if freeze_decoder else "train"), ablate(model, sorted(removed)):
        train(objective, config, data, model.module, folder)
    model.module.eval()
    return folder
