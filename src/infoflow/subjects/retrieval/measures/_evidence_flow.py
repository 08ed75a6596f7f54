"""The table `evidence_flow`: the attention edges, tokens and blocks that carry an answer from evidence to mask."""

# V variant, B row, T token, D width

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import FactWorld
from infoflow.foundation import UserError, stream
from infoflow.models import FastLinear, Model, feed_forward_outputs, module_outputs

from ..models import Library, RetrievalModel
from ._answers import choice_log_probabilities, reader_of
from ._fact_reading import READ_KINDS, logits_of, looked_at, readings_by_kind, scores_of, variant_answers
from ._inputs import EVIDENCE_PARTS, Document, FactInputs, TokenPart
from ._knock_out import (
    ALL_LAYERS,
    NAMED,
    NOWHERE,
    at,
    forbidden_rows,
    knock_outs,
    last_token,
    question_keys,
    random_word,
    removals,
)
from ._tables import EVIDENCE_FLOW, group_rows

_MENTIONS = "tracing every mention"
FLOW_METHODS = ("knock-out", "removal", "tracing", _MENTIONS)
"""Methods: forbid attention edges; remove one key token; restore one output under noise; put noise on all mentions."""
DEVIATIONS = 3.0  # standard deviation of the noise, in standard deviations of the word embeddings
SITES = ("ffn", "attention")
_SUBJECTS = (TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT)
_RANDOM = "random word"


def evidence_flow(
    reader: RetrievalModel | PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = READ_KINDS,
    documents: Sequence[Document] = ("gold", "none"),
    methods: Sequence[str] = FLOW_METHODS,
    facts: int = 128,
    seed: int = 0,
    batch: int = 64,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""How much accuracy is lost without some attention, and how much one restored output regains.

    | method                | intervention                                                              |
    |-----------------------|---------------------------------------------------------------------------|
    | knock-out             | edges (q, k) are forbidden in all heads, in one block or from one upward  |
    | removal               | nothing attends to one token, in one block or in all                      |
    | tracing               | noise on the subject's embeddings, one FFN or attention output restored   |
    | tracing every mention | the same with noise wherever the passage names the subject                |

    | method    | value                                             | baseline                        |
    |-----------|---------------------------------------------------|---------------------------------|
    | knock-out | lost P@1, and the rise of −log p, in nats         | as many random edges of the row |
    | removal   | the same                                          | a random word of the row        |
    | tracing   | regained probability; for `noise`, what it costs  | a random word; other words      |

    Heads are redundant, so a knock-out in one block costs little; prefer the knock-out from a block upward. For an
    object of two tokens, only the last one is removed or restored; for the mask, all masks are restored. The noise, in
    question and evidence, has 3 times the standard deviation of the word embeddings; restored outputs come from the run
    without noise. A passage about one entity names the subject in every sentence; "tracing" adds no noise in sentences
    that do not answer the question. If there are no such sentences, "tracing every mention" has no rows.

    Every number is given for all facts of a kind (`weight` −1) and for each exposure. Knock-outs of a passage without
    the answer (random, or retrieved by mistake) are a control.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document "retrieved".
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        documents: Documents to use; "none" has no evidence, so its rows are about the subject and the mask only. Kinds
            of facts without such a document have no row.
        methods: Subset of the four.
        facts: Maximum number of facts per kind.
        seed: Seeds the choice of facts, random documents, edges and words, and the noise.
        batch: Rows per forward pass, each repeated for several edits.
        library: Library whose index is used instead of building one for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is not a masked LM, no fact is left, or a document or method is unknown.

    Source: knock-outs [@geva2023dissecting]; removal [@voita2019evolution]; tracing [@meng2022locating].
    """
    if strange := [method for method in methods if method not in FLOW_METHODS]:
        raise UserError(f"methods must be among {', '.join(FLOW_METHODS)}. Got {strange[0]}.")
    model, rows = looked_at(reader_of(reader)), list[dict[str, Any]]()
    for readings in readings_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        for document in filter(readings.has, documents):
            inputs = readings.inputs(document)
            for method in methods:
                rows += _rows({"document": document, "method": method}, model, inputs, seed, batch)
    return EVIDENCE_FLOW.conform(pd.DataFrame(rows, columns=pd.Index(EVIDENCE_FLOW.column_names)))


def _rows(keys: dict[str, Any], model: Model, inputs: FactInputs, seed: int, batch: int) -> list[dict[str, Any]]:
    if keys["method"].startswith("tracing"):
        noise = subject_noise(model, inputs, seed)
        if keys["method"] == _MENTIONS:
            every = mention_noise(model, inputs, seed)
            if (every.any(axis=2) == noise.any(axis=2)).all():
                return []
            noise = every
        return tracing_rows(keys, model, inputs, noise, seed, batch)
    tried = knock_outs if keys["method"] == "knock-out" else removals
    return forbidden_rows(keys, model, inputs, tried(inputs, len(model.anatomy.reads.layers), seed), batch)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """Outputs of a corrupted run that are replaced by the clean ones."""

    sites: tuple[tuple[str, int], ...]  # ("ffn" or "attention", layer)
    tokens: np.ndarray  # bool (row, token)


def tracing_rows(
    keys: dict[str, Any], model: Model, inputs: FactInputs, noise_BTD: np.ndarray, seed: int, batch: int
) -> list[dict[str, Any]]:
    """How far the right object's probability recovers, for each site, token, block and group of facts.

    The first rows give the loss from the noise, which is added to the word embeddings.
    """
    num_layers = len(model.anatomy.reads.layers)
    tokens, counted = _tokens(inputs, seed)
    tried = [(site, where, layer) for site in SITES for where in tokens for layer in range(num_layers)]
    variants = [Restored(((site, layer),), tokens[where]) for site, where, layer in tried]
    clean, noisy, found_V = traced_answers(model, inputs, noise_BTD, variants, batch)
    _, other, _ = traced_answers(model, inputs, _elsewhere(inputs, noise_BTD, seed), [], batch)
    probability = {name: scores_of(logs, inputs)["probability"] for name, logs in (("clean", clean), ("noisy", noisy))}
    lost_B = probability["clean"] - probability["noisy"]
    baseline_B = probability["clean"] - scores_of(other, inputs)["probability"]
    common = {**keys, "metric": "probability"}
    noise = {**common, "what": "noise", "scope": "all", "layer": ALL_LAYERS}
    rows = list(group_rows(inputs.facts, lost_B, baseline_B, **noise))
    regained_VB = scores_of(found_V, inputs)["probability"] - probability["noisy"]
    by_name = dict(zip(tried, regained_VB, strict=True))
    for (site, where, layer), regained_B in by_name.items():
        if where != _RANDOM and counted[where].any():
            random_B = np.where(counted[where] & counted[_RANDOM], by_name[site, _RANDOM, layer], np.nan)
            restored = {**common, "what": f"{site} at the {where}", "scope": "block", "layer": layer}
            rows += group_rows(inputs.facts, np.where(counted[where], regained_B, np.nan), random_B, **restored)
    return rows


def traced_answers(
    model: Model, inputs: FactInputs, noise: np.ndarray, variants: Sequence[Restored], batch: int = 64
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probability of each choice: clean and with noise, (row, choice), and restored, (variant, row, choice)."""
    stack, parts = model.anatomy.reads.name, []
    changed = [{(stack, layer) for _, layer in one.sites} for one in variants]
    for start in range(0, len(inputs), batch):
        rows = np.arange(start, min(start + batch, len(inputs)))
        own, added = inputs.take(rows), torch.from_numpy(noise[rows]).to(model.device)
        kept = [Restored(one.sites, one.tokens[rows]) for one in variants]
        answers, clean = _clean_run(model, own)

        @contextmanager
        def edits(_: np.ndarray, some: Sequence[int], added=added, kept=kept, clean=clean) -> Iterator[None]:
            with _noisy(model, added, max(len(some), 1)), _restored(model, [kept[one] for one in some], clean):
                yield

        parts.append((answers, *variant_answers(model, own, changed, edits, batch, keep_heads=True)))
    clean_parts, noisy_parts, found_parts = zip(*parts, strict=True)
    return np.concatenate(clean_parts), np.concatenate(noisy_parts), np.concatenate(found_parts, axis=1)


def subject_noise(model: Model, inputs: FactInputs, seed: int) -> np.ndarray:
    r"""Noise \(\mathcal{N}(0, (3\sigma)^2)\) on the subject's tokens, in question and evidence, 0 elsewhere: float32
    (row, token, width). \(\sigma\) is the standard deviation of the word embeddings' entries.
    """
    return _noise_at(np.isin(inputs.parts, _SUBJECTS), model, inputs, seed)


def mention_noise(model: Model, inputs: FactInputs, seed: int) -> np.ndarray:
    """Noise as in `subject_noise`, but on every mention of the subject, in all sentences of the passage."""
    return _noise_at(mentions(inputs), model, inputs, seed)


def mentions(inputs: FactInputs) -> np.ndarray:
    """Mentions of the question's subject, bool (row, token): in the question, and as adjacent words in the passage."""
    found = np.isin(inputs.parts, _SUBJECTS)
    for row, parts in enumerate(inputs.parts):
        ids, name = inputs.input_ids[row], inputs.input_ids[row, parts == TokenPart.SUBJECT]
        words = np.isin(parts, EVIDENCE_PARTS)
        for start in np.flatnonzero(words[: len(words) - len(name) + 1]):
            here = slice(start, start + len(name))
            if words[here].all() and (ids[here] == name).all():
                found[row, here] = True
    return found


def _noise_at(tokens: np.ndarray, model: Model, inputs: FactInputs, seed: int) -> np.ndarray:
    weight = next(model.module.get_input_embeddings().parameters()).detach()
    spread, width = DEVIATIONS * float(weight.float().std()), weight.shape[1]
    noise = np.zeros((*inputs.input_ids.shape, width), dtype=np.float32)
    for row, key in enumerate(question_keys(inputs)):
        drawn = stream("evidence-noise", seed, *key).standard_normal((int(tokens[row].sum()), width))
        noise[row, tokens[row]] = spread * drawn
    return noise


def _elsewhere(inputs: FactInputs, noise: np.ndarray, seed: int) -> np.ndarray:
    """The noise moved to as many random words of each row, except subject, masks, object and words already noisy."""
    left_out = [TokenPart.PAD, TokenPart.SPECIAL, *NAMED]
    moved = np.zeros_like(noise)
    for row, key in enumerate(question_keys(inputs)):
        noisy = noise[row].any(axis=1)
        vectors = noise[row, noisy]
        places = np.flatnonzero(~np.isin(inputs.parts[row], left_out) & ~noisy)
        num = min(len(vectors), len(places))
        chosen = stream("evidence-noise-elsewhere", seed, *key).choice(places, num, replace=False)
        moved[row, chosen] = vectors[:num]
    return moved


def _tokens(inputs: FactInputs, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Positions to restore, bool (row, token), and the rows that have such a token."""
    length = inputs.input_ids.shape[1]
    places = {
        "subject": last_token(inputs, TokenPart.SUBJECT),
        "object": last_token(inputs, TokenPart.EVIDENCE_OBJECT),
        _RANDOM: random_word(inputs, "restored", seed),
    }
    tokens = {where: at(place, length) for where, place in places.items() if (place != NOWHERE).any()}
    tokens["mask"] = inputs.parts == TokenPart.MASK
    return tokens, {where: np.asarray(there.any(axis=1)) for where, there in tokens.items()}


# -- outputs that are kept and restored -------------------------------------------------------------------------------

_Outputs = dict[tuple[str, int], Tensor]


@contextmanager
def _at_sites(model: Model, seen: Callable[[str, int, Tensor], Tensor | None]) -> Iterator[None]:
    """Call `seen` with the site, the layer and the output of every FFN and attention; it may return another output."""
    stack = model.anatomy.reads
    attentions = [layer.attentions["self"].output_projection for layer in stack.layers]
    with (
        module_outputs(model, feed_forward_outputs(model, stack.name), partial(seen, "ffn")),
        module_outputs(model, attentions, partial(seen, "attention")),
    ):
        yield


@torch.no_grad()
def _clean_run(model: Model, inputs: FactInputs) -> tuple[np.ndarray, _Outputs]:
    """The log-probability of each choice, and the output of every site."""
    found: _Outputs = {}

    def keep(site: str, layer: int, output: Tensor) -> None:
        found[site, layer] = output

    with FastLinear(), _at_sites(model, keep):
        logits = logits_of(model, inputs)
    return choice_log_probabilities(logits, inputs), found


@contextmanager
def _restored(model: Model, variants: Sequence[Restored], clean: _Outputs) -> Iterator[None]:
    def edit(site: str, layer: int, output: Tensor) -> Tensor | None:
        if not any((site, layer) in one.sites for one in variants):
            return None
        here = np.concatenate([one.tokens & ((site, layer) in one.sites) for one in variants])
        restored = clean[site, layer].repeat(len(variants), 1, 1)
        return torch.where(torch.from_numpy(here).to(output.device)[:, :, None], restored, output)

    with _at_sites(model, edit):
        yield


@contextmanager
def _noisy(model: Model, noise: Tensor, times: int) -> Iterator[None]:
    handle = model.module.get_input_embeddings().register_forward_hook(
        lambda module, args, output: output + noise.to(output).repeat(times, 1, 1)
    )
    try:
        yield
    finally:
        handle.remove()
