"""One pass: every batch runs once, and every measure and sample takes what it needs."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.foundation import Progress, current_display
from infoflow.models import AttentionCall, Model, Tap, tap
from infoflow.objectives import AbstractObjective

from ._forward import check_finite, cut_to_budget, forward, left_out_texts, query_block
from ._measure import (
    AbstractMeasure,
    AttentionByBlocks,
    Failures,
    Intervention,
    Measure,
    PairMeasure,
    PassOptions,
    SampleMeasure,
)
from ._occurrences import read_tags
from ._reader import Reader
from ._sample import Activations, Need, PaddedBatch, Regime, SampleFacts, SampleRequest, TokenSample
from ._selection import SampleFiller, select_occurrences, within_budget

_WIDE = 256  # width from which a CPU reads small batches, see `_small_batches`
_CPU_TOKENS, _CPU_ATTENTION_BYTES = 512, 1 << 23  # padded tokens and attention weights of such a batch in float32
_MAX_DRAWS = 16  # limit on passes over the corpus in the training regime, where a sentence yields few occurrences
_TYPES = 1000  # number of replacement types in the training regime if no measure requests one
SampleKey = tuple[str, Regime]  # (stack, regime)
"""(stack, regime) of a sample of states."""


class _ByLayer:
    """Hands each layer's attention, while the model runs, to the measures that read it so (`AttentionByBlocks`)."""

    def __init__(self, failures: Failures, advance: Callable[[], None] = lambda: None) -> None:
        self._failures, self._advance = failures, advance
        self._batch: Activations | None = None
        self._measures: list[AttentionByBlocks] = []

    @contextmanager
    def batch(self, batch: Activations, measures: Sequence[Measure]) -> Iterator[None]:
        """Read the forward pass in the block, which is that of `batch`."""
        self._batch, self._measures = batch, [one for one in measures if isinstance(one, AttentionByBlocks)]
        try:
            yield
        finally:
            self._batch, self._measures = None, []

    def __call__(self, call: AttentionCall) -> None:
        batch, key, size = self._batch, (call.stack, call.kind), call.weights.shape[2]
        if batch is None:
            return
        queries = slice(None)
        if size < call.num_queries:  # masks of a block of queries are not kept
            batch, queries = replace(batch, _made={}), slice(call.start, call.start + size)
        device = batch.model.device
        visible = batch.shared(key, call.masks, lambda: call.visible().to(device))
        layer = replace(
            batch,
            attention={key: [call.weights.to(device)]},
            visible={key: [visible]},
            queries=queries,
            mask=call.masks,
        )
        for measure in self._measures:
            if measure not in self._failures:
                with self._failures.of(measure):
                    measure.update_block(layer, call.layer)
        self._advance()


class Pass:
    """Measures of one model on one corpus: selected, fed batch by batch, merged, and turned into tables."""

    def __init__(
        self,
        model: Model,
        corpus: Corpus,
        measures: Sequence[AbstractMeasure],
        options: PassOptions,
        folder: Path,
        ranks_from: Corpus | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.model, self.options, self._folder = model, options, folder
        self._failures = failures or Failures(model.name, keep_going=False)
        self.streaming = [measure for measure in measures if isinstance(measure, Measure)]
        self.sampling = [measure for measure in measures if isinstance(measure, SampleMeasure | PairMeasure)]
        self._intervenes = any(isinstance(measure, Intervention) for measure in measures)
        self.reader = Reader(
            model,
            corpus,
            max_length=options.max_length,
            seed=options.seed,
            decoder=self._runs_decoder(corpus),
            white_space_words=options.white_space_words,
            ranks_from=ranks_from,
            corruption=options.corruption,
            where=options.where,
            decoder_side="text" if self._denoises else "translation",
        )
        self._prepare_noise()
        for measure in self.streaming:
            with self._failures.of(measure):
                measure.prepare(self.reader)
        self._draws_of = {
            id(measure): 1 if measure.regime == "clean" else min(_MAX_DRAWS, measure.draws(self.reader))
            for measure in self.streaming
        }
        self.fillers = self._make_fillers()

    def _runs_decoder(self, corpus: Corpus) -> bool:
        if len(self.model.anatomy.stacks) == 1:
            return False
        if reason := _no_target(self.model, corpus, self.options.corruption if self._denoises else None):
            current_display().note(f"{reason}: only the encoder of {self.model.name} is read.")
            return False
        wants_heads = any({"attention", "heads"} & measure.needs for measure in self.streaming)
        return wants_heads or self._intervenes or self.options.decoder_states

    @property
    def _denoises(self) -> bool:
        """Whether the model is an encoder–decoder trained on single texts or on several tasks, not on two languages."""
        trained = self.options.corruption
        return (
            trained is not None
            and trained.layout == "encoder-decoder"
            and (trained.one_vocabulary or not trained.needs_translation)
        )

    def _prepare_noise(self) -> None:
        noisy = [measure for measure in [*self.streaming, *self.sampling] if measure.regime == "training"]
        if noisy:
            requested = [each.top_types if isinstance(each, Measure) else each.request.top_types for each in noisy]
            self.reader.use_training_noise(max(types or _TYPES for types in requested))

    def _make_fillers(self) -> dict[SampleKey, SampleFiller]:
        fillers: dict[SampleKey, SampleFiller] = {}
        for regime in ("clean", "training"):
            requests = [measure.request for measure in self.sampling if measure.regime == regime]
            both = regime == "clean" and self.options.decoder_states and self.reader.has_target
            stacks = [self.reader.source_stack, *(["decoder"] if both else [])]
            for stack in stacks if requests else []:
                fillers[stack, regime] = self._make_filler(stack, regime, requests)
        return fillers

    def _make_filler(self, stack: str, regime: Regime, requests: Sequence[SampleRequest]) -> SampleFiller:
        layers = self.model.anatomy.stack(stack)
        num_states = len(layers.layers) + 1
        num = max([request.occurrences for request in requests if request.strata is None], default=0)
        strata = [each.strata for each in requests if each.strata is not None]
        draws = 1 if regime == "clean" else min(_MAX_DRAWS, self.reader.draws_for(num))
        occurrences = select_occurrences(self.reader, stack, regime, num, draws, strata)
        affordable = self.options.sample_bytes // (num_states * layers.width * 4)
        if affordable < len(occurrences):
            needed = len(occurrences) * num_states * layers.width * 4
            current_display().note(
                f"The token sample of {self.model.name}'s {stack} keeps {affordable:,} of the {len(occurrences):,} "
                f"tokens requested: their states would take {needed:,} bytes, and sample_bytes is "
                f"{self.options.sample_bytes:,}. Raise it (in a plan, and with --set: analysis.sample_bytes)."
            )
        selected = min(num, len(occurrences))
        occurrences, uniform = within_budget(occurrences, self.reader.ranks[stack], num, strata, affordable)
        facts = SampleFacts(
            model=self.model.name,
            stack=stack,
            regime=regime,
            task=self.model.task,
            seed=self.options.seed,
            tokenizer=self.reader.tokenizer_digest(stack),
            frequencies=self.reader.frequencies[stack],
            ranks=self.reader.ranks[stack],
            symbols=self.reader.symbols(stack),
            uniform=uniform,
            selected=selected,
        )
        tags = read_tags(self.reader.corpus, occurrences) if stack == self.reader.source_stack else {}
        return SampleFiller(occurrences, facts, tags, self._folder / f"{stack}-{regime}", num_states, layers.width)

    def run(self, shard: int = 0, num_shards: int = 1) -> None:
        """Run every `num_shards`-th batch, starting with number `shard`."""
        draws = self._draws()
        jobs = [(regime, draw, rows) for regime, draw in draws for rows in self._batches(regime, draw)][
            shard::num_shards
        ]
        self._check_long_texts(jobs)
        for measure in self.streaming:
            if measure not in self._failures:
                with self._failures.of(measure):
                    measure.begin(self.reader, self.options)
        with ExitStack() as stack, torch.inference_mode():
            display = current_display()
            total = int(sum(self.reader.num_tokens(rows) for _, _, rows in jobs))
            progress = stack.enter_context(display.progress(f"Reading with {self.model.name}", total, "tokens"))
            for regime in ("clean", "training"):
                chosen = [job for job in jobs if job[0] == regime]
                needs = self._needs(regime)
                if not chosen:
                    continue
                blocks = [self._query_block(needs, rows) for _, _, rows in chosen]
                read, (by_layer, whole) = _ByLayer(self._failures), self._of_attention(regime)
                kept = needs if whole else needs - {"attention"}
                with tap(self.model, **dict.fromkeys(kept, True), on_attention=read if by_layer else None) as tapped:
                    for (_, draw, rows), block in zip(chosen, blocks, strict=True):
                        if block is None:
                            self._run_batch(tapped, read, kept, regime, draw, rows)
                            progress.advance(self.reader.num_tokens(rows))
                for (_, draw, rows), block in zip(chosen, blocks, strict=True):
                    if block is not None:
                        self._run_by_blocks(needs, regime, draw, rows, block, progress)

    def _batches(self, regime: Regime, draw: int) -> list[np.ndarray]:
        """Batches under the token budget, and under a byte budget if attention weights are held.

        With training noise, sentences without a replaced token are skipped, unless the sample or a measure needs them.
        """
        reads_all = regime == "clean" or any(m.regime == regime and not m.only_replaced for m in self.streaming)
        rows = self.reader.rows if reads_all else self._rows_with_noise(draw)
        token_budget = int(min(self.options.tokens_per_batch, _CPU_TOKENS * _small_batches(self.model)))
        batches = self.reader.batches(token_budget, rows)
        if "attention" not in self._needs(regime):
            return batches
        attention_bytes = min(self.options.attention_bytes, _CPU_ATTENTION_BYTES * _small_batches(self.model))
        at_a_time = sum if self._of_attention(regime)[1] else max
        num_heads = at_a_time(attention.num_heads for attention in self.model.anatomy.attentions())
        return cut_to_budget(batches, self.reader.longest, num_heads, attention_bytes)

    def _of_attention(self, regime: Regime) -> tuple[list[Measure], list[Measure]]:
        """The measures that read attention layer by layer, and those that need all layers at once."""
        reading = [one for one in self.streaming if one.regime == regime and "attention" in one.needs]
        by_layer = [one for one in reading if isinstance(one, AttentionByBlocks)]
        return by_layer, [one for one in reading if one not in by_layer]

    def _query_block(self, needs: set[Need], rows: np.ndarray) -> int | None:
        return query_block(self.model, self.reader.longest(rows), self.options) if "attention" in needs else None

    def _check_long_texts(self, jobs: Sequence[tuple[Regime, int, np.ndarray]]) -> None:
        """Report which measures leave out texts that are read by blocks of queries."""
        long = [rows for regime, _, rows in jobs if self._query_block(self._needs(regime), rows)]
        whole = [one.name for regime in ("clean", "training") for one in self._of_attention(regime)[1]]
        if long and whole:
            texts, names = len(np.unique(np.concatenate(long))), ", ".join(dict.fromkeys(whole))
            least = min(map(self.reader.longest, long))
            current_display().warn(left_out_texts(names, self.model, texts, least))

    def _rows_with_noise(self, draw: int) -> np.ndarray:
        rows = self.reader.rows
        kept = np.isin(rows, self.reader.replaced(rows, draw))
        for (_, regime), filler in self.fillers.items():
            if regime == "training":  # a token to predict may be unchanged in the input
                kept |= np.isin(rows, filler.occurrences.row[filler.occurrences.draw == draw])
        return rows[kept]

    def _draws(self) -> list[tuple[Regime, int]]:
        draws: list[tuple[Regime, int]] = []
        streams_clean = any(measure.regime == "clean" for measure in self.streaming)
        if streams_clean or any(regime == "clean" for _, regime in self.fillers):
            draws.append(("clean", 0))
        noisy = self.fillers.get((self.reader.source_stack, "training"))
        num_draws = int(noisy.occurrences.draw.max()) + 1 if noisy is not None and len(noisy.occurrences) else 0
        of_streaming = [self._draws_of[id(measure)] for measure in self.streaming if measure.regime == "training"]
        num_draws = max([num_draws, *of_streaming])
        training: Regime = "training"
        return draws + [(training, draw) for draw in range(num_draws)]

    def _needs(self, regime: Regime) -> set[Need]:
        needs: set[Need] = {"hidden"} if any(key[1] == regime for key in self.fillers) else set()
        for measure in self.streaming:
            if measure.regime == regime:
                needs |= measure.needs
        return needs

    def _run_batch(
        self, tapped: Tap, read: _ByLayer, needs: set[Need], regime: Regime, draw: int, rows: np.ndarray
    ) -> None:
        batch = self.reader.padded(rows, regime, draw).to(self.model.device)
        measures = self._reading(regime, draw)
        with read.batch(self._activations(batch, regime, Tap(), set()), measures):
            forward(self.model, batch)
        self._update(batch, self._activations(batch, regime, tapped, needs), draw, measures)

    def _run_by_blocks(
        self, needs: set[Need], regime: Regime, draw: int, rows: np.ndarray, size: int, progress: Progress
    ) -> None:
        """Run one long text; its attention exists only for `size` queries at a time."""
        left = self.reader.num_tokens(rows)
        step = left * size / (len(list(self.model.anatomy.attentions())) * self.reader.longest(rows))

        def advance() -> None:
            nonlocal left
            progress.advance(done := min(left, step))
            left -= done

        whole = self._of_attention(regime)[1]
        measures = [measure for measure in self._reading(regime, draw) if measure not in whole]
        needs, read = needs - {"attention"}, _ByLayer(self._failures, advance)
        with tap(self.model, **dict.fromkeys(needs, True), on_attention=read, query_block=size) as tapped:
            batch = self.reader.padded(rows, regime, draw).to(self.model.device)
            with read.batch(self._activations(batch, regime, Tap(), set()), measures):
                forward(self.model, batch)
            self._update(batch, self._activations(batch, regime, tapped, needs), draw, measures)
        progress.advance(left)

    def _activations(self, batch: PaddedBatch, regime: Regime, tapped: Tap, needs: set[Need]) -> Activations:
        return Activations(
            model=self.model,
            regime=regime,
            sentence_ids=batch.sentence_ids,
            blocks=batch.blocks,
            streams=batch.streams,
            visible=tapped.visible,
            **{need: _filled(getattr(tapped, need)) for need in needs},
        )

    def _reading(self, regime: Regime, draw: int) -> list[Measure]:
        """The measures that read this pass over the corpus."""
        return [
            measure for measure in self.streaming if measure.regime == regime and draw < self._draws_of[id(measure)]
        ]

    def _update(self, batch: PaddedBatch, activations: Activations, draw: int, measures: Sequence[Measure]) -> None:
        check_finite(self.model, activations.hidden, batch)
        without = replace(activations, attention={}, visible={})
        for measure in measures:
            if measure not in self._failures:
                with self._failures.of(measure):
                    measure.update(without if isinstance(measure, AttentionByBlocks) else activations)
        for (_, filled), filler in self.fillers.items():
            if filled == activations.regime:
                filler.update(batch, activations, draw)

    def state_dict(self) -> dict[str, dict[str, np.ndarray]]:
        """The sums and samples of this shard, as plain arrays."""
        states = {
            f"measure-{index}": measure.state_dict()
            for index, measure in enumerate(self.streaming)
            if measure not in self._failures
        }
        return states | {f"sample-{stack}-{regime}": f.state_dict() for (stack, regime), f in self.fillers.items()}

    def load(self, states: Sequence[dict[str, dict[str, np.ndarray]]]) -> None:
        """Replace the state by the sum of all shards' states."""
        for index, measure in enumerate(self.streaming):
            if measure in self._failures:
                continue
            measure.load_state_dict(states[0][f"measure-{index}"])
            for state in states[1:]:
                other = copy.deepcopy(measure)
                other.load_state_dict(state[f"measure-{index}"])
                measure.merge(other)
        for (stack, regime), filler in self.fillers.items():
            for state in states:
                filler.load(state[f"sample-{stack}-{regime}"])

    def samples(self) -> dict[SampleKey, TokenSample]:
        return {key: filler.sample() for key, filler in self.fillers.items()}


def _filled(layers_by_place: Mapping[Any, list[Tensor]]) -> dict[Any, list[Tensor]]:
    """Drop kinds of attention in which a pruned model has no head left."""
    return {place: layers for place, layers in layers_by_place.items() if any(layer.numel() for layer in layers)}


def _small_batches(model: Model) -> float:
    """Size of this model's batches in units of `_CPU_TOKENS` and `_CPU_ATTENTION_BYTES`, or infinity without a limit.

    On a CPU a wide model's states of a large batch exceed the cache. At width 384 in float32, batches of 512 tokens ran
    about as fast as those of 1,024 and held 40 MB instead of 85; those of 2,048 took a fifth longer. In bf16, batches
    of 1,024 were the fastest (benchmarks/streaming.py).
    """
    wide = max(stack.width for stack in model.anatomy.stacks) >= _WIDE
    return 4 / model.module.dtype.itemsize if wide and model.device.type == "cpu" else math.inf


def _no_target(model: Model, corpus: Corpus, denoiser: AbstractObjective | None) -> str | None:
    """Why an encoder–decoder's decoder cannot be fed, or None; `denoiser` is its training objective on one text."""
    if denoiser is not None:
        whole = denoiser.writes == "text"
        return None if whole else f"Its decoder was trained on parts of texts ({denoiser.name})"
    if "translation" not in corpus.columns:
        return f"{corpus.name} has no translations"
    tokenizer = model.target_tokenizer or model.require_tokenizer()
    source, target = (getattr(tokenizer, f"{side}_lang", None) for side in ("src", "tgt"))
    if hasattr(tokenizer, "tgt_lang") and target in (None, source):
        return "No target language was given (--target-language; target_language in Python)"
    return None
