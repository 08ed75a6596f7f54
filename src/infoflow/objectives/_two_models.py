"""Objectives with a second model: ELECTRA's generator, and the teacher of DistilBERT."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Count, Limits, Name, Probability

from ._batch import (
    NO_TARGET,
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Field,
    LossTerm,
    Noise,
    Shown,
    prediction_head,
    supervised_cross_entropy,
    tokens_of,
)
from ._masking import hide, mask_id, text_counts
from ._objective import LOSS, AbstractObjective, Answers, Family, Metric

REPLACED = "replaced-token"


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Electra(AbstractObjective):
    """Replaced-token detection ([@clark2020electra]).

    The discriminator is saved and measured; the generator, a masked LM, is saved in its subfolder `generator`.

    `max(1, min(int(.155 · T), round(.15 · len)))` positions are drawn with replacement; at 128 tokens, 19 draws give
    17.7 positions on average. The generator's loss counts every draw, duplicates included, as in the released code. The
    generator reads 85 % of the positions as [MASK]; its samples go into the clean text, one sample per position. The
    loss is the generator's mean plus 50 times the discriminator's mean over all tokens that are not padding. No
    gradient passes through the samples.
    """

    name: ClassVar[str] = "electra"
    layout: ClassVar[Layout] = "generator-discriminator"
    family: ClassVar[Family] = "discriminate"
    draws: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {REPLACED: 50.0, "generator": 1.0}
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "clean": Field(pad="source"), "times": Field()}
    metrics: ClassVar[tuple[Metric, ...]] = (  # not the loss, because it mostly reflects how many tokens are replaced
        Metric(name=f"{REPLACED} AUC", baseline="chance", better="higher", gain=0.1),
    )

    rate: Probability = 0.15  # draws, as a share of the tokens
    max_tokens: Count = 128  # T in the limit of int(.155 T) draws per sequence
    mask_share: Probability = 0.85  # share of the draws that become [MASK] for the generator; the rest is unchanged
    selected_only: bool = False  # discriminator loss only on the generator's positions, as in ELECTRA's ablation

    @property
    def predicted_share(self) -> float:
        return self.rate

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Draw positions: `labels` are the tokens there, `times` how often each was drawn, and `clean` is the text."""
        tokens, mask = example.text, mask_id(vocabulary, self.name)
        candidates = np.flatnonzero(~vocabulary.is_special[tokens])
        times, masked = np.zeros(len(tokens), dtype=np.int64), np.zeros(len(tokens), dtype=bool)
        if len(candidates):
            num = max(1, min(int((self.rate + 0.005) * self.max_tokens), round(self.rate * len(tokens))))
            drawn = candidates[generator.integers(len(candidates), size=num)]
            np.add.at(times, drawn, 1)
            masked[drawn[generator.random(num) < self.mask_share]] = True
        selected = times > 0
        arrays = {
            "input_ids": np.where(masked, mask, tokens),
            "labels": np.where(selected, tokens, -100),
            "clean": tokens,
            "times": times,
        }
        return Corrupted(arrays=arrays, selected=selected)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The discriminator; the generator is saved separately."""
        return module.discriminator  # type: ignore[return-value]

    def further_models(self, module: PreTrainedModel) -> dict[str, PreTrainedModel]:
        """The generator, which is a masked LM."""
        return {"generator": module.generator}  # type: ignore[dict-item]

    def counts(self, batch: Batch) -> dict[str, int]:
        drawn = int(batch["times"].sum())
        return {
            "generator": drawn,
            REPLACED: int((batch["times"] > 0).sum()) if self.selected_only else batch.source_tokens,
        }

    def guesses(self, batch: Batch, unigram: Float[np.ndarray, " token"]) -> dict[str, float]:
        """Baselines from token frequencies.

        The generator's baseline is their cross-entropy. The discriminator's is the entropy of the share of replaced
        tokens, which are the drawn positions except those where sampling by frequency would give the true token.
        """
        labels, times = batch.labels.cpu().numpy(), batch["times"].cpu().numpy()
        chosen = times > 0
        num_judged = self.counts(batch)[REPLACED]
        missed = float((1 - np.exp(-unigram[labels[chosen]])).sum())
        share = min(max(missed / max(num_judged, 1), 1e-6), 1 - 1e-6)
        entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        return {"generator": float((unigram[labels[chosen]] * times[chosen]).sum()), REPLACED: num_judged * entropy}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """The generator's cross-entropy, and the discriminator's binary cross-entropy on the generator's samples."""
        model: Any = module
        chosen = batch["times"] > 0
        logits = self._generated(model, batch, chosen)
        losses = F.cross_entropy(logits, batch.labels[chosen], reduction="none", label_smoothing=label_smoothing)
        text = self._sampled(batch, chosen, logits.detach(), noise)
        real = chosen if self.selected_only else batch.real
        wrong = (text != batch["clean"]).float()
        detected = F.binary_cross_entropy_with_logits(self._detected(model, text, batch), wrong, reduction="none")
        return {
            "generator": LossTerm(total=(losses * batch["times"][chosen]).sum(), count=int(batch["times"].sum())),
            REPLACED: LossTerm(total=detected[real].sum(), count=int(real.sum())),
        }

    def answers(self, module: PreTrainedModel, batch: Batch, noise: Noise) -> dict[str, Answers]:
        """The discriminator's answers to whether each token was replaced, and the truth."""
        model: Any = module
        chosen, real = batch["times"] > 0, batch.real
        text = self._sampled(batch, chosen, self._generated(model, batch, chosen), noise)
        scores = self._detected(model, text, batch)[real].detach().cpu().numpy()
        truth = (text != batch["clean"])[real].long().cpu().numpy()
        rows = real.nonzero()[:, 0].cpu().numpy()
        return {f"{REPLACED} AUC": Answers(scores=scores, truth=truth, example=rows, kind="AUC")}

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """What both models read; random tokens of the text take the place of the generator's samples."""
        chosen = batch["times"] > 0
        logits = torch.full((int(chosen.sum()), len(names)), -torch.inf)
        logits[:, batch["clean"][0, 1:-1]] = 0.0
        text = self._sampled(batch, chosen, logits, batch.noise)
        replaced = ["replaced" if changed else "original" for changed in (text != batch["clean"]).flatten().tolist()]
        if self.selected_only:
            replaced = [one if picked else NO_TARGET for one, picked in zip(replaced, chosen[0].tolist(), strict=True)]
        return Shown(
            inputs={"generator": tokens_of(batch.input_ids, names), "discriminator": tokens_of(text, names)},
            targets={"generator": tokens_of(batch.labels, names), REPLACED: replaced},
        )

    def _generated(self, model: Any, batch: Batch, chosen: Tensor) -> Float[Tensor, "chosen token"]:
        states = model.generator.base_model(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask
        ).last_hidden_state
        return model.generator_logits(states[chosen]).float()

    def _sampled(self, batch: Batch, chosen: Tensor, logits: Tensor, noise: Noise) -> Int[Tensor, "batch token"]:
        """The clean text with one sample of the generator at each chosen position, drawn with Gumbel noise."""
        uniform = noise.uniform("generator", chosen, logits.shape[-1]).clamp(1e-9, 1 - 1e-7)
        drawn = (logits - (-uniform.log()).log()).argmax(dim=-1)
        return batch["clean"].masked_scatter(chosen, drawn)

    def _detected(self, model: Any, text: Tensor, batch: Batch) -> Float[Tensor, "batch token"]:
        logits = model.discriminator(input_ids=text, attention_mask=batch.attention_mask).logits.float()
        return logits.reshape(text.shape)  # output of a token classifier: (batch, token, 1)


Temperature = Annotated[float, Limits(above=0, at_most=100)]
_SMOOTHING = 0.7  # exponent of token frequencies; rare tokens are masked more often


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Distillation(AbstractObjective):
    r"""Masked LM loss plus matching the teacher's distribution and last states ([@sanh2019distilbert]).

    $$ 5 \, \tau^2 \, \mathrm{KL}(p^t_\tau \| p^s_\tau) + 2 \, \mathrm{CE} + (1 - \cos(h^s, h^t)) $$

    Each term is a mean over tokens that are not padding (with `masked_only`, the KL is over masked tokens). The weights
    are the defaults of the released code, whose example for several GPUs gives .33 to each term. \(\tau = 2\) is
    unverified. `ceil(.15 · len)` tokens are masked, drawn without replacement by inverse frequency to the power .7. The
    student has every other layer of its teacher and starts with their weights. Its position embeddings are trained,
    unlike in the released code.
    """

    name: ClassVar[str] = "distillation"
    layout: ClassVar[Layout] = "student-teacher"
    family: ClassVar[Family] = "fill in"
    needs_counts: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (replace(LOSS, name="loss of masked-lm"),)
    term_weights: ClassVar[dict[str, float]] = {"masked-lm": 2.0, "teacher": 5.0, "cosine": 1.0}

    teacher: Name = "masked-lm"  # an objective of the plan; its model of the same seed is the teacher
    rate: Probability = 0.15
    temperature: Temperature = 2.0
    masked_only: bool = False  # use the teacher's distribution only at masked tokens

    @property
    def predicted_share(self) -> float:
        return self.rate

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Mask tokens, rare ones more often; 80 % become [MASK], 10 % a random token, and 10 % stay unchanged."""
        tokens = example.text
        candidates = np.flatnonzero(~vocabulary.is_special[tokens])
        weights = np.maximum(text_counts(vocabulary)[tokens[candidates]], 1.0) ** -_SMOOTHING
        # The largest keys u^(1/w) are a weighted draw without replacement (Efraimidis and Spirakis).
        keys = np.log(generator.random(len(candidates))) / weights
        count = min(int(np.ceil(self.rate * len(tokens))), len(candidates))
        positions = candidates[np.argsort(-keys)[:count]]
        labels = np.full(len(tokens), UNSUPERVISED, dtype=np.int64)
        labels[positions] = tokens[positions]
        shown = hide(tokens, positions, generator, vocabulary, self.name)
        return Corrupted(arrays={"input_ids": shown, "labels": labels}, selected=labels != UNSUPERVISED)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        """The student; the teacher is saved separately."""
        return module.student  # type: ignore[return-value]

    def counts(self, batch: Batch) -> dict[str, int]:
        compared = batch.supervised_tokens if self.masked_only else batch.source_tokens
        return {"masked-lm": batch.supervised_tokens, "teacher": compared, "cosine": batch.source_tokens}

    def guesses(self, batch: Batch, unigram: np.ndarray) -> dict[str, float]:
        """A frequency baseline for the masked tokens; NaN for the terms that need the teacher."""
        labels = batch.labels[batch.labels != UNSUPERVISED].cpu().numpy()
        return {"masked-lm": float(unigram[labels].sum()), "teacher": float("nan"), "cosine": float("nan")}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of masked tokens, divergence from the teacher times τ², and one minus the states' cosine."""
        model: Any = module
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        hidden = model.student.base_model(**inputs).last_hidden_state
        with torch.no_grad():
            taught = model.teacher.eval().base_model(**inputs).last_hidden_state
        real = batch.real
        compared = batch.labels != UNSUPERVISED if self.masked_only else real
        with torch.no_grad():
            wanted = self._log_probs(model.teacher, taught[compared])
        said = self._log_probs(model.student, hidden[compared])
        divergence = F.kl_div(said, wanted, reduction="sum", log_target=True) * self.temperature**2
        apart = 1 - F.cosine_similarity(hidden[real].float(), taught[real].float(), dim=-1)
        return {
            "masked-lm": supervised_cross_entropy(model.student, hidden, batch.labels, label_smoothing),
            "teacher": LossTerm(total=divergence, count=int(compared.sum())),
            "cosine": LossTerm(total=apart.sum(), count=int(real.sum())),
        }

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The inputs and targets, and the teacher's predictions."""
        plain = AbstractObjective.shown(self, batch, names, target_names)
        compared = "masked" if self.masked_only else "all"
        taught = [f"the teacher's probabilities at {compared} tokens"]
        return replace(plain, targets={**plain.targets, "teacher": taught, "cosine": ["the teacher's last states"]})

    def _log_probs(self, module: nn.Module, states: Float[Tensor, "token width"]) -> Float[Tensor, "token vocabulary"]:
        return (prediction_head(module)(states).float() / self.temperature).log_softmax(dim=-1)
