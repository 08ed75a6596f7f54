"""The numeric inputs of this package: a tensor, an array, or lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

Numbers = Tensor | np.ndarray | Sequence[Any]
