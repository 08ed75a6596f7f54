"""Models that a checkpoint is compared with: loaded when they are asked for, once each."""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from infoflow.models import Model

Key = TypeVar("Key", bound=Hashable)


class LoadedOnce(Generic[Key]):
    """Holds what `load` gave of each key, for all measures of one checkpoint, until `clear`."""

    def __init__(self, load: Callable[[Key], Model]) -> None:
        self._load = load
        self._held: dict[Key, Model] = {}

    def named(self, keys: Mapping[str, Key]) -> Callable[[], dict[str, Model]]:
        """Loads the models of these keys, by these names."""
        return lambda: {name: self[key] for name, key in keys.items()}

    def __getitem__(self, key: Key) -> Model:
        if key not in self._held:
            self._held[key] = self._load(key)
        return self._held[key]

    def clear(self) -> None:
        self._held.clear()
