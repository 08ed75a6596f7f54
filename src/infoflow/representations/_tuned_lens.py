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
    r"""Maps a layer's states into the space of the last block's output, so that the model's head can read them.

    $$ \mathrm{lens}_l(h) = h + A_l h + b_l, \qquad \mathrm{lens}_L(h) = h $$

    | symbol     | here                               | space                          |
    |------------|------------------------------------|--------------------------------|
    | $h$        | `states`                           | a row per token, of any layer  |
    | $A_l, b_l$ | `translators[l].weight`, `.bias`   | width × width, width; 0 ≤ l < L |

    A and b start at zero: an untrained tuned lens is the logit lens, and weight decay pulls it back there.
    `fit_tuned_lens` trains it.

    Source: [@belrose2023], following their code; the paper writes A + I for our A.
    """

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.translators = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def of(cls, model: Model) -> "TunedLens":
        """An untrained lens for the stack of `model` with the output head, on its device."""
        stack = model.anatomy.predicts
        return cls(len(stack.layers), stack.width).to(model.device)

    @property
    def num_layers(self) -> int:
        """Number of blocks L; states are numbered 0..L."""
        return len(self.translators)

    def forward(self, states: Float[Tensor, "*rows width"], layer: int) -> Float[Tensor, "*rows width"]:
        """Translated states of one layer, 0..L; those of layer L are unchanged."""
        if layer == self.num_layers:
            return states
        states = states.float()  # of a half-precision model
        return states + self.translators[layer](states)

    def save(self, path: Path | str, model: Model) -> None:
        """Write the translators to a safetensors file that records their model."""
        facts = {"kind": "tuned-lens", "version": "1", "model": model.digest, "name": model.name}
        facts["shape"] = json.dumps([self.num_layers, self.width])
        with atomic_write(path) as temporary:
            save_file({name: value.contiguous() for name, value in self.state_dict().items()}, temporary, facts)

    @classmethod
    def load(cls, path: Path | str, model: Model) -> "TunedLens":
        """A lens from `save`.

        Raises:
            UserError: There is no such file, it is not a tuned lens, or it belongs to another model.
        """
        facts, tensors = _read(Path(path))
        if facts.get("kind") != "tuned-lens":
            raise UserError(f"{path} is no tuned lens. Give a file that TunedLens.save wrote.")
        if facts.get("model") != model.digest:
            raise UserError(
                f"The lens in {path} was trained on {facts.get('name')} (weights {facts.get('model')}). Got "
                f"{model.name} (weights {model.digest}): a lens reads only the model it was trained on. Train another."
            )
        try:
            num_layers, width = json.loads(facts["shape"])
            if len(tensors) > 2 * num_layers or width > max(tensor.numel() for tensor in tensors.values()):
                raise ValueError("its shape is not that of its tensors")
            lens = cls(num_layers, width)
            lens.load_state_dict(tensors)
        except (KeyError, ValueError, TypeError, RuntimeError, RecursionError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"The lens in {path} is damaged: {reason}. Train it again.") from None
        return lens.to(model.device)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise UserError(f"No tuned lens at {path}. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise UserError(f"{path} is no safetensors file: {error}") from error
