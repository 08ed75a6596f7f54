"""Which experts the routers of a mixture-of-experts model choose, over all tokens and by the corpus's tags."""

# B sentence, T token, N token of the batch, E expert, V value of a tag, 64 bootstrap blocks

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from infoflow.flow import Intervention, NothingToRead, PaddedBatch, PassOptions, Reader, forward
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.heads import TokenTags
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

ALL = TokenTags.ALL
_LEAST = 20  # minimum number of tokens with a tag

EXPERT_ROUTING = TableSchema(
    name="expert_routing",
    description="Share of tokens that a router sends to each expert, over all tokens and over those with a tag. A "
    "token goes to several experts, so the shares of a layer add up to that number. Special tokens do not count.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "block, from 0"),
        Column("expert", "int64", "", "expert, from 0"),
        Column("annotation", "string", "", "column of the corpus's tags; all: every token"),
        Column("tag", "string", "", "tag of the token's word; all: every token"),
        *estimate_columns("share", "share of tokens", "equal use of experts; by tag: the expert's share of all"),
    ),
)


class ExpertRouting(Intervention):
    r"""How often each expert is chosen, and for which words.

    $$ p_l(e \mid v) = \frac{1}{|T_v|} \sum_{t \in T_v} [e \in \mathrm{top}_k(r_l(h_t))] $$

    $T_v$ are the tokens with tag v (or all), $r_l$ is the router of layer l. A router is any module inside a block that
    returns logits and the chosen experts of each token, so no list of families is needed. If a block runs several
    routers, the last one counts (JetMoE's first router chooses attention heads).

    Args:
        sentences: Maximum number of sentences.

    Source: ours. [@jiang2024] show shares by domain, [@muennighoff2025] by domain and vocabulary.
    """

    table: ClassVar[TableSchema] = EXPERT_ROUTING
    by_token = True

    def __init__(self, sentences: int = 2000) -> None:
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        self.sentences = sentences

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        tags, found = TokenTags(reader), dict[tuple[str, int], _Counts]()
        for rows in reader.batches(options.tokens_per_batch, reader.rows[: self.sentences]):
            batch = reader.padded(rows).to(reader.model.device)
            with torch.inference_mode(), _routed(reader.model, batch) as chosen:
                forward(reader.model, batch)
            if not chosen:
                raise NothingToRead(f"no module of {reader.model.name} returns the experts of each token")
            of_stack = {stack: tags.of(batch, stack) for stack in batch.streams}
            for key, chosen_BTE in chosen.items():
                found.setdefault(key, _Counts()).add(chosen_BTE, batch, key[0], of_stack[key[0]])
        rows = [
            {"stack": stack, "layer": layer, **row}
            for (stack, layer), counts in sorted(found.items())
            for row in counts.rows(tags.names)
        ]
        return pd.DataFrame(rows, columns=self.table.column_names)


@contextmanager
def _routed(model: Model, batch: PaddedBatch) -> Iterator[dict[tuple[str, int], Bool[Tensor, "sentence token expert"]]]:
    """Yield a dict that holds the experts of each token, by stack and layer, once the model has read the batch."""
    found: dict[tuple[str, int], Tensor] = {}

    def keep(stack: str, layer: int, output: Any) -> None:
        shape = batch.streams[stack].input_ids.shape
        chosen = _chosen(output, shape.numel()) if isinstance(output, tuple) else None
        if chosen is not None:
            found[stack, layer] = chosen.unflatten(0, shape)

    def hook(stack: str, layer: int) -> Any:
        return lambda module, args, output: keep(stack, layer, output)

    with ExitStack() as hooks:
        for stack in model.anatomy.stacks:
            if stack.name not in batch.streams:
                continue
            for layer in stack.layers:
                block: nn.Module = model.module.get_submodule(layer.block)
                for module in block.modules():
                    hooks.callback(module.register_forward_hook(hook(stack.name, layer.index)).remove)
        yield found


def _chosen(output: tuple[Any, ...], tokens: int) -> Bool[Tensor, "token expert"] | None:
    """The experts that a module has chosen for each token, or None if it is no router.

    A router returns logits (N, E), and its choice in one of three forms: the experts' indices (N, k) or a mask (N, E);
    scores (N, E) that are 0 for all other experts; or the number of tokens of each expert, with the indices of these
    tokens, expert by expert.
    """
    tensors = [one for one in output if isinstance(one, Tensor)]
    sizes = [one for one in output if isinstance(one, list)]
    if len(sizes) == 1 and len(tensors) + 1 == len(output):
        return _from_lists(tensors, sizes[0], tokens)
    if len(tensors) != len(output) or len(tensors) < 2 or any(one.numel() % tokens for one in tensors):
        return None
    rows = [one.reshape(tokens, -1) for one in tensors]
    whole = [one for one in rows if _is_whole(one)]
    if not whole and len(rows) == 2:
        return _from_scores(*rows)
    if len(whole) != 1:
        return None
    experts, (numbers,) = max(one.shape[1] for one in rows), whole
    if numbers.shape[1] == experts:
        return numbers > 0
    if experts < 2 or int(numbers.min()) < 0 or int(numbers.max()) >= experts:
        return None
    return torch.zeros(tokens, experts, dtype=torch.bool, device=numbers.device).scatter(1, numbers.long(), True)


def _is_whole(values: Tensor) -> bool:
    return not values.is_floating_point() and values.dtype != torch.bool


def _from_scores(scores: Tensor, logits: Tensor) -> Bool[Tensor, "token expert"] | None:
    """The experts whose score is not 0, if their number is the same for all tokens and not all experts (Llama 4)."""
    if scores.shape != logits.shape or not bool((logits != 0).all()):
        return None
    chosen = scores != 0
    counts = chosen.sum(1)
    alike = bool((counts == counts[0]).all())
    return chosen if alike and 0 < int(counts[0]) < scores.shape[1] else None


def _from_lists(tensors: list[Tensor], sizes: list[Any], tokens: int) -> Bool[Tensor, "token expert"] | None:
    """The experts of each token, from the indices of the tokens of each expert (JetMoE)."""
    if not all(isinstance(one, int) for one in sizes) or sum(sizes) % tokens or not sum(sizes):
        return None
    for numbers in tensors:
        if not _is_whole(numbers) or numbers.numel() != sum(sizes) or int(numbers.max()) >= tokens:
            continue
        expert = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(numbers.device)
        found = torch.zeros(tokens, len(sizes), dtype=torch.bool, device=numbers.device)
        found[numbers.flatten(), expert] = True
        if int(found.sum()) == sum(sizes):
            return found
    return None


class _Counts:
    """Counts of one layer by tag: the tokens in each block, and how many of them each expert got, (64, 1 + E)."""

    def __init__(self) -> None:
        self.of_tag: dict[int, np.ndarray] = {}

    def add(self, chosen_BTE: Tensor, batch: PaddedBatch, stack: str, tags: np.ndarray) -> None:
        """Add a batch; `tags`: sentence, token and tag in each row."""
        valid = (batch.streams[stack].valid & batch.streams[stack].counted).cpu().numpy()
        every = np.column_stack([*np.nonzero(valid), np.zeros(int(valid.sum()), np.int64)])
        sentence, token, tag = np.concatenate([every, tags[valid[tags[:, 0], tags[:, 1]]]]).T
        chosen = chosen_BTE.cpu().numpy()[sentence, token]
        row = np.column_stack([np.ones(len(chosen)), chosen])
        block = batch.blocks.numpy()[sentence]
        for number in np.unique(tag):
            own = self.of_tag.setdefault(int(number), np.zeros((NUM_BLOCKS, row.shape[1])))
            np.add.at(own, block[tag == number], row[tag == number])

    def rows(self, names: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        total = self.of_tag[0].sum(0)
        for number, counts_NX in sorted(self.of_tag.items()):
            if counts_NX[:, 0].sum() < _LEAST:
                continue
            column, tag = names[number]
            for expert in range(counts_NX.shape[1] - 1):
                equal = total[1:].sum() / total[0] / len(total[1:])
                control = float(total[1 + expert] / total[0] if number else equal)
                share = ratio_estimate(counts_NX[:, 1 + expert], counts_NX[:, 0], control, "share")
                yield {"expert": expert, "annotation": column, "tag": tag, **share}
