"""Train a pruned model on, so that what is left of it can follow the heads that went."""

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
    """Train a model on without the heads that were removed from it, as at first: no gates, no penalty.

    Interrupted, it continues when it is called again with the same arguments and the same first weights; a run that is
    finished is read.

    Args:
        model: With the weights to begin with; they change. The heads stay in it: ablate them wherever it is read.
        objective: What it was trained for.
        data: To train on.
        config: Of this training. A rate that is as high as in the first training and falls again ("learning-rate
            rewinding") recovers more than the low constant one of learned gates.
        out: Holds a folder for each choice of heads, and of what is frozen.
        removed: Heads whose output is 0 from the first update to the last.
        freeze_decoder: Train an encoder–decoder's encoder alone, as `learn_gates` does where the encoder's heads go.

    Returns:
        The folder of the run.

    Raises:
        UserError: The folder holds a training with other settings, or from other weights; or there is no decoder that
            could be frozen beside an encoder.

    Source: [@renda2020], who compare rates and weights to go on with, for single weights and channels of
    convolutions; for heads nothing is published that we know of.
    """
    if freeze_decoder and len(model.anatomy.stacks) == 1:
        raise UserError(f"freeze_decoder is for encoder-decoders. Got {model.name}, which has one stack.")
    kept = digest([sorted(removed), freeze_decoder])[:8]
    folder = Path(out) / f"without-{len(removed)}-{kept}"
    with only_training(model, ["encoder"], "auto" if freeze_decoder else "train"), ablate(model, sorted(removed)):
        train(objective, config, data, model.module, folder)
    model.module.eval()
    return folder
