"""All counted tokens of a pass: their labels, and the clusters of their states in every layer."""

from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Int, UInt16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CountedTokens:
    """Occurrences of one stack, in any order; a few bytes each."""

    sentence: Int[np.ndarray, " token"]
    position: Int[np.ndarray, " token"]
    token: Int[np.ndarray, " token"]
    label: Int[np.ndarray, " token"]
    """The token to predict there; NO_LABEL if there is none."""
    clusters: UInt16[np.ndarray, "layer clustering token"]

    def __len__(self) -> int:
        return len(self.token)

    def take(self, rows: np.ndarray) -> "CountedTokens":
        return replace(self, **{field.name: getattr(self, field.name)[..., rows] for field in fields(self)})

    def ordered(self) -> "CountedTokens":
        """Sorted in an order that does not depend on batches and shards."""
        return self.take(np.lexsort((self.label, self.token, self.position, self.sentence)))

    def state_dict(self) -> dict[str, np.ndarray]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def together(cls, parts: list["CountedTokens"]) -> "CountedTokens":
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names})
