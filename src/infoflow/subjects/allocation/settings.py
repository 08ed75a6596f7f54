"""The section `[dynamics]` of a study's plan."""

from dataclasses import dataclass, fields
from typing import Annotated

from infoflow.foundation import Count, CountOrNone, Limits

from .measures import RecordConfig, RecordSettings

Few = Annotated[int, Limits(at_least=1, at_most=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicsPlan(RecordSettings):
    """How loss changes are allocated to parameters while the models of a study train; disabled by default.

    A recording leaves the weights bit for bit unchanged. It adds about (tokens + held_out_tokens) / batch_tokens of the
    cost of the training, and proportionally less with `every` above 1.
    """

    on: bool = False
    tokens: Count = 2048  # source tokens of training sentences on which the loss is computed
    held_out_tokens: CountOrNone = 1024  # source tokens of validation sentences; 0: none
    parts: Few = 4  # disjoint parts of the sentences, for intervals and reliability

    def record(self) -> RecordConfig:
        """The settings of the recorder."""
        return RecordConfig(**{one.name: getattr(self, one.name) for one in fields(RecordSettings)})


SECTIONS = {"dynamics": DynamicsPlan}
