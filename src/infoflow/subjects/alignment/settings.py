"""The section `[alignment]` of a study's plan."""

from dataclasses import dataclass

from infoflow.foundation import Count, CountOrNone, LearningRate, Several, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentPlan:
    """How each seed's masked LM is aligned to its translation encoder; studies without both models skip it.

    The published learning rates (5e-5 and 3e-5) are meant for BERT and hundreds of thousands of sentences; they are too
    small for the small models of a study.
    """

    on: bool = True
    sentences: Several = 4000  # training sentences for the explicit alignment and each of its two trained controls
    pairs: CountOrNone = 8000  # training sentence pairs for the implicit alignment; 0: no such alignment
    held_out: Count = 1000  # sentences of the analysed part on which all encoders are compared
    learning_rate: LearningRate = 1e-3
    batch_sentences: Count = 32
    save_every: CountOrNone = 500  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "alignment")


SECTIONS = {"alignment": AlignmentPlan}
