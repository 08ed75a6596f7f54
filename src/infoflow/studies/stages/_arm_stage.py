"""What stages have in common that look at an arm of retrieval once it has learned."""

from dataclasses import dataclass, replace

from infoflow.flow import agree

from .._retrieval_arms import ArmModel, at_half_rate, plain_arms
from ._stage import AbstractStage


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractArmStage(AbstractStage):
    """A stage about one arm."""

    model: ArmModel  # at the whole rate

    @property
    def counts(self) -> ArmModel:
        """The model that counts: that of half the rate, where the arms of the study needed it."""
        return replace(self.model, halved=at_half_rate(self.model.models))

    def is_settled(self) -> bool:
        """Whether it is known which model counts: all plain arms are trained, and this one."""
        return agree(all(model.is_trained() for model in [*plain_arms(self.model.models), self.model]))
