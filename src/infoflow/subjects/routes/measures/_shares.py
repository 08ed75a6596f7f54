"""The importance of each head, feed-forward block and residual connection for the states that they sum to."""

# B sentence, T query token, S key token, H head, D model width, N token of the batch, P pair of head, query and key

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infoflow.flow import NothingToRead
from infoflow.heads import Norm, close, is_norm, output_weight
from infoflow.models import Attention, AttentionCall, Model, Site, states_of, states_read, tap, weight_of

_VALUES = 1 << 24  # numbers of (sentence, head, key, width) held at a time
_PAIRS = 1 << 18  # numbers of (pair, width) held at a time: they stay in the cache
_TINY = 1e-6  # share of the state's length; a part whose bound is below this gets the bound instead of the exact value


def part_importance(
    parts: Float[Tensor, "*state part width"], whole: Float[Tensor, "*state width"]
) -> Float[Tensor, "*state part"]:
    r"""Share of each vector in a sum: how much closer the vector is to the sum than the zero vector is.

    $$ \mathrm{importance}_k = \frac{p_k}{\sum_m p_m}, \qquad
    p_k = \max(0, \lVert y \rVert_1 - \lVert y - z_k \rVert_1) $$

    $z_k$ are the parts and $y$ is the whole. Shares are 0 to 1 and sum to 1. If no part points to the whole, all shares
    are equal.

    Args:
        parts: (..., part, width).
        whole: (..., width).

    Source: [@ferrando2024], whose code clips $p_k$ at 1e-5 instead of 0 (verified in its `get_contributions`).

    >>> part_importance(torch.tensor([[3.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([2.0, 1.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    distance = (whole.unsqueeze(-2) - parts).abs().sum(-1)
    return _normalised((whole.abs().sum(-1, keepdim=True) - distance).clamp(min=0))


def _normalised(proximity: Float[Tensor, "*state part"]) -> Float[Tensor, "*state part"]:
    total = proximity.sum(-1, keepdim=True)
    return torch.where(total > 0, proximity / total, 1 / max(1, proximity.shape[-1]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionShares:
    """Importance of the parts of each token's state after an attention; they sum to 1 for each token."""

    site: Site
    heads: Float[Tensor, "sentence head query key"]
    residual: Float[Tensor, "sentence query"]
    visible: Bool[Tensor, "sentence query key"]  # never padding
    unexplained: float
    """Largest |parts + biases − state|, relative to the state's largest number."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockShares:
    """Importances in one block: its attentions in order, then the feed-forward block; arbitrary at padding."""

    stack: str
    layer: int
    attentions: tuple[AttentionShares, ...]
    feed_forward: Float[Tensor, "sentence token"]  # the rest, up to 1, is the residual connection's


def refusal(model: Model) -> str | None:
    """The reason why a model has no routes, if its anatomy shows one; otherwise None."""
    if any(one.gated for one in model.anatomy.attentions()):
        return "a gate multiplies what its heads read, so their outputs are not sums over tokens"
    return model.anatomy.lacks() or model.anatomy.outside_attention() or model.anatomy.several_streams()


@contextmanager
def watching(
    model: Model, real: dict[str, Bool[Tensor, "sentence token"]], show: Callable[[BlockShares], None]
) -> Iterator[None]:
    """Call `show` with the importances in each block of the forward passes inside the `with` block.

    Args:
        model: A loaded model.
        real: By stack, the tokens that are not padding. Padding is left out of all shares.
        show: Receives the shares in a block.

    Raises:
        NothingToRead: A block is not a sum of its input, its heads and one further part.
    """
    attentions = {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}
    now: list[_Pass] = []

    def listen(call: AttentionCall) -> None:
        if now:
            now[-1].attended.append(_Attended(call=call, attention=attentions[call.stack, call.kind, call.layer]))

    def begin(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        now.append(_Pass(model=model, before=states_read(args, kwargs)))

    def end(block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        passed = now.pop()
        with torch._C.DisableTorchFunction():  # keeps torch's modes from intercepting each operation
            show(passed.shares(states_of(output), real))

    def project(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if now and now[-1].attended:
            now[-1].attended[-1].projected = output

    def normalise(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if now:
            after = len([one for one in now[-1].attended if one.projected is not None])
            like = now[-1].before.shape  # OPT flattens its tokens
            before, made = (one.reshape(like) if one.numel() == like.numel() else one for one in (args[0], output))
            now[-1].norms.append(_Normed(module=module, before=before, output=made, after=after))

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if now and isinstance(first := output[0] if isinstance(output, tuple) else output, Tensor):
            now[-1].outputs.append(first)

    module = model.module
    blocks = {module.get_submodule(layer.block) for stack in model.anatomy.stacks for layer in stack.layers}
    with ExitStack() as hooks:
        hooks.enter_context(tap(model, on_attention=listen))
        for block in blocks:
            hooks.callback(block.register_forward_pre_hook(begin, with_kwargs=True).remove)
            for part in block.modules():
                if is_norm(part):
                    hooks.callback(part.register_forward_hook(normalise).remove)
            for part in block.children():
                hooks.callback(part.register_forward_hook(leave).remove)
            hooks.callback(block.register_forward_hook(end).remove)
        for name in {one.output_projection for one in attentions.values()}:
            hooks.callback(module.get_submodule(name).register_forward_hook(project).remove)
        yield


@dataclass(kw_only=True, slots=True, eq=False)
class _Attended:
    call: AttentionCall
    attention: Attention
    projected: Tensor | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Normed:
    """A norm in a block, and the number of attentions before it."""

    module: nn.Module
    before: Tensor
    output: Tensor
    after: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Linear:
    """A norm as a linear map of parts of its input: centre, times gain, divided by each token's deviation."""

    norm: Norm
    scale: Float[Tensor, "sentence token"]

    @classmethod
    def of(cls, normed: _Normed, real: Bool[Tensor, "sentence token"]) -> "_Linear":
        norm = Norm.of(normed.module, normed.before[real], normed.output[real])
        if norm is None:
            raise NothingToRead(f"the norm {type(normed.module).__name__} is not a LayerNorm or an RMSNorm")
        states = normed.before.float()
        moved = states - states.mean(-1, keepdim=True) if norm.centred else states
        return cls(norm=norm, scale=(moved.square().mean(-1) + norm.epsilon).rsqrt())

    def unscaled(self, parts: Float[Tensor, "*part width"]) -> Float[Tensor, "*part width"]:
        moved = parts - parts.mean(-1, keepdim=True) if self.norm.centred else parts
        return moved * self.norm.gain.float()

    def __call__(
        self, parts: Float[Tensor, "sentence token width"], rows: Tensor | slice = slice(None)
    ) -> Float[Tensor, "sentence token width"]:
        """The norm of a sum of parts in some sentences, with the norm's bias."""
        moved = self.unscaled(parts) * self.scale[rows].unsqueeze(-1)
        return moved if self.norm.bias is None else moved + self.norm.bias.float()

    def part(self, part: Float[Tensor, "sentence token width"]) -> Float[Tensor, "sentence token width"]:
        return self.unscaled(part) * self.scale.unsqueeze(-1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Sum:
    """A state as the sum of the preceding state, an attention's heads, and constants."""

    attended: _Attended
    whole: Float[Tensor, "sentence token width"]
    residual: Float[Tensor, "sentence token width"]
    factor: float
    norms: tuple[_Linear, ...]

    def shares(self, model: Model, real_BT: Tensor, keys_BS: Tensor) -> AttentionShares:
        """Importance of each head with each key, and of the residual.

        Raises:
            NothingToRead: The projection's output is not the sum of the heads and its bias.
        """
        call = self.attended.call
        if call.others is not None:
            raise NothingToRead("its global tokens have values of their own")
        output_HdD = output_weight(model, self.attended.attention).float()
        visible_BTS = call.visible() & keys_BS.unsqueeze(1)
        size = call.value.shape[2] * output_HdD.shape[0] * output_HdD.shape[2]
        parts = [
            self._chunk(model, output_HdD, visible_BTS, real_BT, chunk)
            for chunk in torch.arange(len(real_BT)).split(max(1, _VALUES // max(1, size)))
        ]
        shares_BTP, lost = torch.cat([shares for shares, _ in parts]), max(lost for _, lost in parts)
        if lost > (1e-3 if self.whole.dtype.itemsize >= 4 else 5e-2):
            raise NothingToRead(f"its parts do not add up to its states: {lost:.0%} is missing")
        heads_BTHS = shares_BTP[..., :-1].unflatten(2, (len(output_HdD), -1))
        return AttentionShares(
            site=call.site,
            heads=heads_BTHS.transpose(1, 2),
            residual=shares_BTP[..., -1],
            visible=visible_BTS,
            unexplained=lost,
        )

    def _chunk(
        self, model: Model, output_HdD: Tensor, visible_BTS: Tensor, real_BT: Tensor, rows: Tensor
    ) -> tuple[Float[Tensor, "sentence token part"], float]:
        """Shares in some sentences (last: the residual's), and how much of the states the parts leave unexplained."""
        call, real, shown = self.attended.call, real_BT[rows, :, None], visible_BTS[rows, None]
        used_BS = shown.any(2).squeeze(1)
        value_BHSd = call.value[rows].float().where(used_BS[:, None, :, None], 0)
        weights_BHTS = (call.weights[rows].float() * self.factor).where(shown & real.unsqueeze(1), 0)
        heads_BTD = (weights_BHTS @ value_BHSd).transpose(1, 2).flatten(2) @ output_HdD.flatten(0, 1)
        summed_BTD = heads_BTD + self._constant(model, rows, real_BT[rows], heads_BTD)
        written_BHSD = value_BHSd @ output_HdD
        for norm in self.norms:
            summed_BTD = norm(summed_BTD, rows)
            written_BHSD = norm.unscaled(written_BHSD)
            weights_BHTS = weights_BHTS * norm.scale[rows, None, :, None].where(real.unsqueeze(1), 0)
        whole_BTD, residual_BTD = (each[rows].float().where(real, 0) for each in (self.whole, self.residual))
        proximity_BHTS = head_proximities(whole_BTD, written_BHSD, weights_BHTS)
        kept_BT = whole_BTD.abs().sum(2) - (whole_BTD - residual_BTD).abs().sum(2)
        both = [proximity_BHTS.transpose(1, 2).flatten(2), kept_BT.clamp(min=0).unsqueeze(2)]
        missing = residual_BTD + summed_BTD - whole_BTD
        lost = missing.where(real, 0).abs().max() / whole_BTD.abs().max().clamp(min=1e-9)
        return _normalised(torch.cat(both, dim=2)), float(lost)

    def _constant(self, model: Model, rows: Tensor, real_BT: Tensor, heads_BTD: Tensor) -> Tensor:
        """The bias of the output projection."""
        projected = self.attended.projected
        assert projected is not None
        projection = model.module.get_submodule(self.attended.attention.output_projection)
        own = weight_of(projection, "bias").float() if getattr(projection, "bias", None) is not None else 0.0
        bias_D = heads_BTD.new_zeros(heads_BTD.shape[2]) + own * self.factor
        if not close((heads_BTD + bias_D)[real_BT], (projected[rows] * self.factor)[real_BT]):
            raise NothingToRead(
                "its heads' outputs are changed before their projection, so they are not sums over tokens"
            )
        return bias_D


@dataclass(kw_only=True, slots=True, eq=False)
class _Pass:
    model: Model
    before: Tensor
    attended: list[_Attended] = field(default_factory=list)
    norms: list[_Normed] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)  # outputs of the block's children

    def shares(self, after: Tensor, real: dict[str, Tensor]) -> BlockShares:
        """The shares in the block.

        Raises:
            NothingToRead: The block is not a sum of its input, its heads and one further part.
        """
        if not self.attended:
            raise NothingToRead(f"a block of {self.model.name} ran without attention")
        site = self.attended[0].call.site
        real_BT = real[site.stack]
        if torch.equal(after, self.before):
            return self._passed_on(real)
        sums, feed_BTD, kept_BTD = self._sums(after, real_BT)
        both_BTPD = torch.stack([feed_BTD, kept_BTD], dim=2)
        return BlockShares(
            stack=site.stack,
            layer=site.layer,
            attentions=tuple(one.shares(self.model, real_BT, real[one.attended.attention.keys_stack]) for one in sums),
            feed_forward=part_importance(both_BTPD, after.float())[..., 0],
        )

    def _passed_on(self, real: dict[str, Tensor]) -> BlockShares:
        """The shares in a block whose output is its input: the residual connections have all importance."""
        site, like = self.attended[0].call.site, self.before[..., 0].float()
        attentions = [
            AttentionShares(
                site=call.site,
                heads=torch.zeros_like(call.weights, dtype=torch.float32),
                residual=torch.ones_like(like),
                visible=call.visible() & real[attention.keys_stack].unsqueeze(1),
                unexplained=0.0,
            )
            for call, attention in ((one.call, one.attention) for one in self.attended)
        ]
        return BlockShares(
            stack=site.stack, layer=site.layer, attentions=tuple(attentions), feed_forward=torch.zeros_like(like)
        )

    def _sums(self, after: Tensor, real_BT: Tensor) -> tuple[list[_Sum], Tensor, Tensor]:
        """The block's attentions as sums, and the parts of its output from the feed-forward block and the residual."""

        def same(first: Tensor, second: Tensor) -> bool:
            return first.shape == second.shape and close(first[real_BT], second[real_BT])

        post = bool(self.norms) and same(self.norms[-1].output, after)
        state, sums, known = self.before, list[_Sum](), True
        for number, one in enumerate(self.attended, 1):
            projected = one.projected
            assert projected is not None, "an attention ends with its projection"
            following = [norm for norm in self.norms if norm.after == number]
            inner = next((norm for norm in following if same(norm.before, projected)), None)
            update = projected if inner is None else inner.output
            factor, joined = self._joined(following, state, update, same)
            used = [inner, joined if post else None]
            linear = tuple(_Linear.of(norm, real_BT) for norm in used if norm is not None)
            whole = state + factor * update if joined is None else joined.output if post else joined.before
            residual = state.float() if not post or joined is None else linear[-1].part(state.float())
            sums.append(_Sum(attended=one, whole=whole, residual=residual, factor=factor, norms=linear))
            state, known = whole, known and joined is not None
        rest = after - state
        if same(state, after):
            return sums, torch.zeros_like(state.float()), state.float()
        if known and post:
            last, summed = _Linear.of(self.norms[-1], real_BT), self.norms[-1].before.float()
            return sums, last.part(summed - state.float()), last.part(state.float())
        added = (rest, after - self.before)  # Falcon adds the attention to what its feed-forward block returned
        if not known and (post or not any(same(one, other) for one in self.outputs for other in added)):
            raise NothingToRead(
                f"block {self.attended[0].call.layer} of {self.model.name} is not a sum of its input, its heads and a "
                "feed-forward block, with a norm before or after each"
            )
        return sums, rest.float(), state.float()

    @staticmethod
    def _joined(
        norms: list[_Normed], state: Tensor, update: Tensor, same: Callable[[Tensor, Tensor], bool]
    ) -> tuple[float, _Normed | None]:
        """A factor m and the norm that reads state + m · update; (1, None) without such a norm (parallel blocks)."""
        for norm in norms:
            if norm.before.shape != state.shape:
                continue  # a norm of queries or keys
            difference = (norm.before - state).float()
            length = float(update.float().square().sum())
            factor = float((difference * update).sum()) / length if length else 1.0
            factor = 1.0 if abs(factor - 1) < 1e-2 else factor
            if abs(factor) > 1e-3 and same(state + factor * update, norm.before):
                return factor, norm
        return 1.0, None


def head_proximities(
    whole_BTD: Float[Tensor, "sentence query width"],
    written_BHSD: Float[Tensor, "sentence head key width"],
    weights_BHTS: Float[Tensor, "sentence head query key"],
) -> Float[Tensor, "sentence head query key"]:
    r"""$\max(0, \lVert y_i \rVert_1 - \lVert y_i - a^h_{ij} f_h(x_j) \rVert_1)$ for all heads, queries and keys.

    It is at most $a^h_{ij}\, \mathrm{sign}(y_i) \cdot f_h(x_j)$, one matrix product, which is enough for most pairs.
    """
    signs_B1DT = whole_BTD.sign().mT.unsqueeze(1)
    most_BHTS = (weights_BHTS * (written_BHSD @ signs_B1DT).mT).clamp(min=0)
    length_BT = whole_BTD.abs().sum(2)
    found = (most_BHTS > _TINY * length_BT[:, None, :, None]).nonzero(as_tuple=True)
    weights_P, step, exact = weights_BHTS[found], max(1, _PAIRS // whole_BTD.shape[2]), []
    for start in range(0, len(weights_P), step):
        sentence_P, head_P, query_P, key_P = (each[start : start + step] for each in found)
        parts_PD = written_BHSD[sentence_P, head_P, key_P] * weights_P[start : start + step, None]
        distance_P = parts_PD.sub_(whole_BTD[sentence_P, query_P]).abs_().sum(1)
        exact.append((length_BT[sentence_P, query_P] - distance_P).clamp_(min=0))
    if exact:
        most_BHTS[found] = torch.cat(exact)
    return most_BHTS
