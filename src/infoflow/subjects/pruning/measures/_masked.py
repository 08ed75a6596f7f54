"""A model whose removed heads are zeros: of full size, and loadable by any program."""

import copy
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from infoflow.foundation import UserError, atomic_folder, check_own_folder
from infoflow.heads import head_set, silence
from infoflow.models import TARGET_FOLDER, Model

MASKED = "masked.json"


def save_masked(model: Model, heads: Iterable[Sequence[str | int]], folder: Path | str, card: str = "") -> Path:
    r"""Write a copy of the model whose output projection ignores some heads, in the format of `save_pretrained`.

    $$ W_O[:, \text{columns of a removed head}] = 0 $$

    The logits equal those of `prune(model, heads)` and `ablate(model, heads)`, up to rounding; the model gets neither
    smaller nor faster. `AutoModel.from_pretrained` and every other program can load the folder.

    Args:
        model: The whole model; it is not changed.
        heads: (stack, kind, layer, head) of each head to silence.
        folder: A new folder, or one written by this function.
        card: Text of its README.md.

    Raises:
        UserError: A head does not exist, or the folder holds something else.
    """
    path = Path(folder)
    check_own_folder(path, MASKED, "A masked model")
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


def check_masked(masked: Path, out: Path) -> None:
    """Check, before any work, that a masked model can be written to `masked` and a pruned one to `out`.

    Raises:
        UserError: The folder holds something else, or one is inside the other.
    """
    check_own_folder(masked, MASKED, "A masked model")
    one, other = masked.resolve(), out.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise UserError(f"The masked model needs a different folder from the pruned one ({out}). Got {masked}.")


def _card(name: str, heads: int) -> str:
    title = f"# {name} with {heads} attention heads set to zero"
    return f"{title}\n\nAn ordinary model folder: load it like the original model.\n"
