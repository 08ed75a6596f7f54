"""The neurons of one layer: kinds with and without each group of sentences, and rows of single neurons."""

# F neuron, G group of bootstrap blocks, P bin of positions, K candidate token, V token type, D width

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import Conv1D
from infoflow.corpus import printable
from infoflow.flow import Reader
from infoflow.models import weight_of
from infoflow.representations import BlockGroups
from infoflow.results import estimate

from ._counts import GROUPS, Counted, TokenCounts, position_bin
from ._kinds import LEAST, POSITIONAL_NATS, SHAPES, Detectors, position_information, shapes, token_detectors

DETECTOR = "detector"
_CANDIDATES = 16  # most frequent tokens of a neuron that may be its triggers
_WRITTEN = 5  # tokens that an update promotes or suppresses most
_SENTENCE = 160  # characters


class LayerNeurons:
    """The neurons of one layer. Arrays over (1 + G) hold all sentences first, then those without each group."""

    def __init__(self, reader: Reader, counted: Counted, stack: str, layer: int) -> None:
        self.reader, self.stack, self.layer = reader, stack, layer
        self._all, self._part = counted.stacks[stack], counted.part(stack, layer)
        self._own, self._control = self._all.layers[layer], self._all.controls[layer]
        self.tokens, self.active = self._all.positions.sum(1).numpy(), self._own.active.numpy()  # (G,), (G, F)
        self._ids, self._counts = _candidates(self._own.tokens)
        sums = self._counts, self._own.tokens.lost.numpy(), self.active, self._all.frequencies.numpy()
        self.detectors: list[Detectors] = [
            token_detectors(self._ids, *one) for one in zip(*map(leave_out, sums), strict=True)
        ]
        at, places = leave_out(self._own.positions.numpy()), leave_out(self._all.positions.numpy())
        self.information = position_information(at, places)
        self.positional = self.information > POSITIONAL_NATS
        self.shapes = np.array([shapes(*one) for one in zip(at, places, strict=True)])
        control = self._control.positions[0].numpy(), self._all.control_positions.numpy()
        self.control_information = position_information(*control)
        self.control_positional, self.control_shapes = self.control_information > POSITIONAL_NATS, shapes(*control)

    def control_detectors(self) -> float:
        """Share of detectors among neurons with the same activity, but shuffled tokens."""
        ids, counts = _candidates(self._control.tokens)
        given = counts.sum(0), self._control.tokens.lost.sum(0).numpy(), self.active.sum(0)
        return float(token_detectors(ids, *given, self._all.frequencies.sum(0).numpy()).found.mean())

    def estimate(self, values: np.ndarray, baseline: float, scale: Any) -> dict[str, Any]:
        values = np.where(np.isfinite(values), values, values[0])
        groups = BlockGroups(GROUPS, torch.empty(0, dtype=torch.int64), torch.from_numpy(self.tokens))
        units, count = int((self.tokens > 0).sum()), int(self.tokens.sum())
        return estimate(values[0], groups.replicates(values), baseline, count, scale=scale, units=units)

    @cached_property
    def head(self) -> Tensor | None:
        """The unembedding (V, D), if this stack writes to it."""
        model = self.reader.model
        head = model.module.get_output_embeddings()
        if self.stack != model.anatomy.predicts.name or not isinstance(head, torch.nn.Linear):
            return None
        weight = weight_of(head).float().cpu()
        return weight if weight.shape[1] == model.anatomy.stack(self.stack).width else None

    @cached_property
    def _updates(self) -> Tensor:
        """The row that each neuron writes, (F, D)."""
        module = self.reader.model.module.get_submodule(self._part.out)
        weight = weight_of(module).float().cpu()
        return weight if isinstance(module, Conv1D) else weight.T

    def effect(self, neuron: int) -> np.ndarray:
        """Mean logits that the neuron adds to each token where it is active, (V,)."""
        assert self.head is not None
        mean = float(self._own.written[neuron]) / max(int(self.active[:, neuron].sum()), 1)
        return (self.head @ self._updates[neuron] * mean).numpy()

    def away(self) -> tuple[np.ndarray, np.ndarray]:
        """For each detector, whether it lowers its triggers' mean logit, and the share of tokens that it lowers."""
        away, others = np.zeros((2, self.active.shape[1]))
        common = np.flatnonzero(self._all.frequencies.sum(0).numpy() >= LEAST)
        for neuron in np.flatnonzero(np.any([one.found for one in self.detectors], axis=0)):
            triggers = next(one.tokens[:, neuron] for one in self.detectors if one.found[neuron])
            logits = self.effect(int(neuron))
            away[neuron] = logits[triggers[triggers >= 0]].mean() < 0
            others[neuron] = (logits[common] < 0).mean()
        return away, others

    def detector_row(self, neuron: int) -> dict[str, Any]:
        triggers = self.detectors[0].tokens[:, neuron]
        triggers = triggers[triggers >= 0]
        on_triggers = self._counts[:, np.isin(self._ids[:, neuron], triggers), neuron].sum(1)
        shares = leave_out(on_triggers) / np.maximum(leave_out(self.active[:, neuron]), 1)
        of_all = float(self._all.frequencies.sum(0).numpy()[triggers].sum() / self.tokens.sum())
        written = {}
        if self.head is not None:
            logits = self.effect(neuron)
            order = np.argsort(logits)
            written = {
                "effect": float(logits[triggers].mean()),
                "promoted": self._named(order[: -_WRITTEN - 1 : -1]),
                "suppressed": self._named(order[:_WRITTEN]),
            }
        words = {"triggers": self._named(triggers), "sentence": self._sentence(triggers)}
        return self._row(neuron, DETECTOR, **words, **written) | self.estimate(shares, of_all, "share")

    def positional_row(self, neuron: int) -> dict[str, Any]:
        number = self.estimate(self.information[:, neuron], float(self.control_information[neuron]), "any")
        return self._row(neuron, SHAPES[self.shapes[0, neuron]]) | number

    def _row(self, neuron: int, kind: str, **more: Any) -> dict[str, Any]:
        tokens, active = self._all.positions.sum(0).numpy(), self._own.positions.sum(0).numpy()[:, neuron]
        (bins,) = np.nonzero(tokens)
        firsts = np.searchsorted(position_bin(np.arange(2 * self.reader.longest(self.reader.rows) + 2)), bins)
        nothing = {"triggers": "", "effect": float("nan"), "promoted": "", "suppressed": "", "sentence": ""}
        profile = {"positions": firsts.astype(float).tolist(), "profile": (active[bins] / tokens[bins]).tolist()}
        activity = float(active.sum() / tokens.sum())
        return {"neuron": neuron, "kind": kind, "activity": activity} | profile | nothing | more

    def _named(self, tokens: np.ndarray) -> str:
        tokenizer = self.reader.tokenizer(self.stack)
        names = [printable(str(tokenizer.decode([int(token)]))) for token in tokens if token < len(tokenizer)]
        return ", ".join(f"“{name}”" for name in names)

    def _sentence(self, triggers: np.ndarray) -> str:
        """The first text with the most frequent trigger, if this stack reads the text; otherwise ""."""
        for row in self.reader.rows.tolist() if self.stack == self.reader.source_stack else ():
            if triggers[0] in self.reader.sentence_rows(row, "clean", 0)[self.stack].tokens:
                (sentence,) = self.reader.corpus.select([row])
                return printable(sentence.text)[:_SENTENCE]
        return ""


def _candidates(tokens: TokenCounts) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (K, F), and how often they activate each neuron in each group (G, K, F)."""
    ids, counts = tokens.by_group(_CANDIDATES)
    return ids.numpy(), counts.numpy()


def leave_out(counts: np.ndarray) -> np.ndarray:
    """Sums over groups, then over all but each: (G, ...) to (1 + G, ...)."""
    total = counts.sum(0, keepdims=True)
    return np.concatenate([total, total - counts])
