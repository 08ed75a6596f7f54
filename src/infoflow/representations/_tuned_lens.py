"""The tuned lens: an affine translator per layer, before the logit lens."""

import json
from pathlib import Path
from typing import Any, final

from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from infoflow.foundation import UserError, atomic_write
from infoflow.models import Model


@final
class TunedLens(nn.Module):
    r"""Moves a layer's states to where the last block's output lies, so that the model's head can read them.

    $$ \mathrm{lens}_l(h) = h + A_l h + b_l, \qquad \mathrm{lens}_L(h) = h $$

    | symbol     | here                               | space                          |
    |------------|------------------------------------|--------------------------------|
    | $h$        | `states`                           | a row per token, of any layer  |
    | $A_l, b_l$ | `translators[l].weight`, `.bias`   | width × width, width; 0 ≤ l < L |

    A and b begin at zero: an untrained tuned lens is the logit lens, and weight decay draws it back there.
    `fit_tuned_lens` trains it.

    Source: [@belrose2023], as their code has it; the paper writes A + I for our A.
    """

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.translators = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def of(cls, model: Model) -> "TunedLens":
        """An untrained lens for the stack of `model` that has the output head, on its device."""
        stack = model.anatomy.predicts
        return cls(len(stack.layers), stack.width).to(model.device)

    @property
    def num_layers(self) -> int:
        """Number of blocks L; states are numbered 0..L."""
        return len(self.translators)

    def forward(self, states: Float[Tensor, "*rows width"], layer: int) -> Float[Tensor, "*rows width"]:
        """Translated states of one layer, 0..L; those of layer L as they are."""
        if layer == self.num_layers:
            return states
        states = states.float()  # of a half-precision model
        return states + self.translators[layer](states)

    def save(self, path: Path | str, model: Model) -> None:
        """Write the translators to a safetensors file that knows which model they are for."""
        facts = {"kind": "tuned-lens", "version": "1", "model": model.digest, "name": model.name}
        facts["shape"] = json.dumps([self.num_layers, self.width])
        with atomic_write(path) as temporary:
            save_file({name: value.contiguous() for name, value in self.state_dict().items()}, temporary, facts)

    @classmethod
    def load(cls, path: Path | str, model: Model) -> "TunedLens":
        """The lens that `save` wrote.

        Raises:
            UserError: There is no such file, it is no tuned lens, or it belongs to another model.
        """
        facts, tensors = _read(Path(path))
        if facts.get("kind") != "tuned-lens":
            raise UserError(f"{path} is no tuned lens. Give a file that TunedLens.save wrote.")
        if facts["model"] != model.digest:
            raise UserError(
                f"The lens in {path} was trained on {facts['name']} (weights {facts['model']}). Got {model.name} "
                f"(weights {model.digest}): a lens reads only the model it was trained on. Train one for this model."
            )
        lens = cls(*json.loads(facts["shape"]))
        lens.load_state_dict(tensors)
        return lens.to(model.device)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"No tuned lens at {path}. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise UserError(f"{path} is no safetensors file: {error}") from error
