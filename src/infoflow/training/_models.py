"""Matched models: one kind of block and one initialisation, so that only the objective differs."""

from collections.abc import Sequence

from transformers import PreTrainedModel

from infoflow.architectures import Match, ModelConfig, build
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError
from infoflow.objectives import AbstractObjective


def build_models(
    objectives: Sequence[AbstractObjective],
    config: ModelConfig,
    vocabulary: Vocabulary,
    target_vocabulary: Vocabulary | None = None,
    seed: int = 0,
    match: Match = "encoder",
    family: str = "bert",
) -> dict[str, PreTrainedModel]:
    """One model per objective, with the same embeddings and blocks on the source side, bit for bit.

    Each has its objective's layout; see `infoflow.architectures.build`.

    Raises:
        UserError: Two objectives have the same name.
    """
    names = [objective.name for objective in objectives]
    if len(set(names)) < len(names):
        raise UserError(
            f"build_models needs distinct objective names. Got {', '.join(names)}.\n"
            "Call it once for each variant of an objective: with the same seed they share their initial weights."
        )
    targets = {True: target_vocabulary, False: None}  # what denoises reads and writes one language
    return {
        one.name: build(family, one.layout, config, vocabulary, targets[one.needs_translation], seed=seed, match=match)
        for one in objectives
    }
