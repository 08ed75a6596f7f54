"""A model whose removed heads are zeros: as large as before, and any program that loads models loads it."""

import copy
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from infoflow.foundation import UserError, atomic_folder
from infoflow.heads import head_set
from infoflow.models import TARGET_FOLDER, Model

from ._prune import silence

MASKED = "masked.json"


def save_masked(model: Model, heads: Iterable[Sequence[str | int]], folder: Path | str, card: str = "") -> Path:
    r"""Write a copy of the model in which the output projection ignores some heads, as `save_pretrained` writes it.

    $$ W_O[:, \text{columns of a removed head}] = 0 $$

    The logits are those of `prune(model, heads)` and of `ablate(model, heads)`, up to rounding; nothing gets smaller or
    faster. `AutoModel.from_pretrained` and every other program read the folder.

    Args:
        model: The whole model; it stays as it is.
        heads: (stack, kind, layer, head) of those to silence.
        folder: A new one, or one that this function wrote.
        card: Text of its README.md.

    Raises:
        UserError: A head does not exist, or the folder holds something else.
    """
    path = Path(folder)
    if path.is_dir() and any(path.iterdir()) and not (path / MASKED).is_file():
        raise UserError(f"A masked model gets a folder of its own. {path} holds something else: choose another one.")
    chosen = sorted(head_set(model, heads))
    module = copy.deepcopy(model.module)
    silence(model, module, chosen)
    with atomic_folder(path) as temporary:
        module.save_pretrained(temporary)
        for tokenizer, place in ((model.tokenizer, temporary), (model.target_tokenizer, temporary / TARGET_FOLDER)):
            if tokenizer is not None:
                tokenizer.save_pretrained(place)
        (temporary / MASKED).write_text(json.dumps({"zeroed": chosen}) + "\n", encoding="utf-8")
        (temporary / "README.md").write_text(card or _card(model.name, len(chosen)), encoding="utf-8")
    return path


def _card(name: str, heads: int) -> str:
    title = f"# {name} with {heads} attention heads set to zero"
    return f"{title}\n\nAn ordinary model folder: load it as you load the model it came from.\n"
