"""Stages that train a model into a folder of its own."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from infoflow.flow import agree

from .._study_models import StudyModels
from ._stage import AbstractStage


@runtime_checkable
class TrainedInFolder(Protocol):
    """What such a stage trains."""

    @property
    def models(self) -> StudyModels: ...
    @property
    def key(self) -> str: ...
    @property
    def folder(self) -> Path: ...


class AbstractModelStage(AbstractStage):
    """Done where its facts are recorded and its weights still there; else it trains."""

    recorded: ClassVar[str]
    """Under which name its facts are kept."""

    @property
    @abstractmethod
    def trains(self) -> TrainedInFolder:
        """The model."""

    @abstractmethod
    def train(self) -> dict[str, Any]:
        """Train it, or what is left of it; facts about the training."""

    def is_done(self) -> bool:
        there = (self.trains.folder / "model" / "model.safetensors").is_file()
        return agree(there and self.trains.models.bench.done(self.recorded, self.trains.key))

    def run(self) -> dict[str, Any]:
        bench = self.trains.models.bench
        if not self.is_done():
            bench.remove(self.recorded, self.trains.key)  # the weights are gone
        return bench.facts(self.recorded, self.trains.key, self.train)
