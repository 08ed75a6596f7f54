"""The input of an objective."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from infoflow.foundation import UserError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Example:
    """One example of a corpus before any noise: token ids with the special tokens around each text."""

    texts: tuple[np.ndarray, ...]  # int64 (token,) each: a sentence; the sentences of a window or a pair, in order
    translation: np.ndarray | None = None  # int64 (token,) of the other vocabulary
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)  # annotation by name: of tokens, or of the whole

    @property
    def text(self) -> np.ndarray:
        """The text of an example with exactly one.

        Raises:
            UserError: It has several, or none.
        """
        if len(self.texts) != 1:
            raise UserError(
                f"This objective reads one text per example. Got {len(self.texts)} texts in an example.\n"
                "Give sentences one by one, or an objective that reads windows or pairs."
            )
        return self.texts[0]
