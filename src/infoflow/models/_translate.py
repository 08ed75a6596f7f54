"""Predictions of a model: by its output head from any state, and translations by beam search."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow._transformers import BaseModelOutput, GenerationMixin, LogitsProcessorList, PreTrainedTokenizerBase
from infoflow.corpus import length_batches
from infoflow.foundation import UserError, current_display

from ._anatomy import Stack
from ._first_pass import tiny_inputs
from ._losses import forward_logits, pad_rows, start_token_id, without_cache
from ._model import Model
from ._modules import all_returning, hooked, with_states, without_remarks
from ._tap import tap
from ._tokenizers import language_id, reading_of

# N row, D model width, V vocabulary


@cache
def _encoded() -> type[BaseModelOutput]:
    """The class of an encoder's output with states only; mixtures of experts also need their routers' outputs."""
    from transformers.modeling_outputs import BaseModelOutput  # slow import

    return type("_Encoded", (BaseModelOutput,), {"router_logits": None, "router_probs": None})


class Readout:
    """Everything between a model's last block and its logits; `readout(model)` makes one."""

    def __init__(
        self, model: Model, outputs: dict[nn.Module, Any], token_id: int, dtype: torch.dtype, vocabulary_size: int
    ) -> None:
        self.stack: Stack = model.anatomy.predicts
        """The stack with the head: the decoder of an encoder–decoder."""
        self.vocabulary_size = vocabulary_size
        self._model, self._outputs, self._token_id, self._dtype = model, outputs, token_id, dtype

    def __call__(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocabulary"]:
        """Logits of states taken as the last block's output; differentiable in the states.

        Do not call inside a `tap` of the same model, which would see the skipped blocks.
        """
        rows_ND = states.reshape(-1, states.shape[-1]).to(self._dtype)
        parted = self.stack.parted(rows_ND.unsqueeze(1))
        with all_returning({block: with_states(output, parted) for block, output in self._outputs.items()}):
            logits_NV = forward_logits(self._model, self._inputs(len(rows_ND))).squeeze(1)
        return logits_NV.reshape(*states.shape[:-1], logits_NV.shape[-1])

    def _inputs(self, num: int) -> dict[str, Any]:
        """`num` sentences of one token; only their number matters."""
        ids = torch.full((num, 1), self._token_id, device=self._model.device)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if len(stacks := self._model.anatomy.stacks) > 1:
            encoded = torch.zeros(num, 1, stacks[0].width, dtype=self._dtype, device=self._model.device)
            inputs["encoder_outputs"] = _encoded()(last_hidden_state=encoded)  # type: ignore[arg-type]
            inputs["decoder_input_ids"] = inputs.pop("input_ids")
        return inputs | without_cache(self._model.module)


def readout(model: Model) -> Readout:
    """The map from the last block's output to the logits: final norm, prediction head, unembedding, scaling, bias.

    It is the model's own code: a forward pass whose blocks are skipped and return the given states. So it works for
    every family, whatever its head has (BERT's transform, OPT's projection, T5's scaling, Gemma's soft cap, Marian's
    bias), applies the final norm exactly once, and costs no block. It is checked on a few tokens here.
    """
    if model.task == "encoder":
        raise UserError(
            f"{model.name} has no language-model head, so its states cannot be read as predictions. Load it with its "
            "head: a masked LM, a causal LM or a sequence-to-sequence model."
        )
    inputs = tiny_inputs(model.module)
    outputs: dict[nn.Module, Any] = {}
    blocks = {model.module.get_submodule(layer.block) for layer in model.anatomy.predicts.layers}
    hooks = [block.register_forward_hook(lambda one, args, output: outputs.update({one: output})) for block in blocks]
    with hooked(hooks), torch.no_grad(), tap(model, hidden=True) as seen:
        logits = forward_logits(model, inputs)
    states = seen.hidden[model.anatomy.predicts.name][-1]
    result = Readout(model, outputs, int(inputs["input_ids"][0, 0]), states.dtype, logits.shape[-1])
    with torch.no_grad():
        _require_equal(model, result(states), logits)
    return result


def _require_equal(model: Model, logits: Tensor, expected: Tensor) -> None:
    tolerance = 1e-4 if expected.dtype in (torch.float32, torch.float64) else 2e-2
    if logits.shape != expected.shape or not (logits - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"The logits of {model.name} do not follow from its last block's output alone, so no lens can read them "
            "from a state. Measure this model without the lens."
        )


def translate(
    model: Model,
    sentences: Sequence[str],
    *,
    beams: int = 5,
    length_penalty: float = 1.0,
    max_ratio: float = 2.0,
    longest: int | None = None,
    token_budget: int = 2048,
    **options: Any,
) -> list[str]:
    """Translations in the order of the sentences, by beam search without sampling.

    Args:
        model: A sequence-to-sequence model with a tokenizer.
        sentences: Source sentences; they are truncated to the model's longest input.
        beams: Hypotheses kept per sentence.
        length_penalty: Exponent of the length that divides a hypothesis' log-probability.
        max_ratio: Maximum number of output tokens, as a multiple of the sentence's own source tokens, plus 10, so that
            a translation does not depend on its batch.
        longest: Maximum number of output tokens, instead of `max_ratio`, for texts such as summaries.
        token_budget: Source tokens per batch, padding included.
        options: Further arguments of `generate`, such as `forced_bos_token_id` of a multilingual model.
    """
    if model.task != "seq2seq":
        raise UserError(f"Only a sequence-to-sequence model translates. {model.name} is a {model.task} model.")
    tokenizer = model.require_tokenizer()
    limit = {} if model.max_tokens is None else {"truncation": True, "max_length": model.max_tokens}
    rows = [tokenizer(sentence, **limit)["input_ids"] for sentence in sentences]
    limits = [int(max_ratio * len(row)) + 10 if longest is None else longest for row in rows]
    settings = {"length_penalty": length_penalty, **options}
    return _written(model, rows, limits, "Translating", beams=beams, token_budget=token_budget, **settings)


def write_texts(
    model: Model, rows: Sequence[Sequence[int]], longest: int, *, beams: int = 5, token_budget: int = 2048
) -> list[str]:
    """The decoder's output for each row of encoder tokens, special ones included, as in `translate`.

    `longest` is the maximum number of output tokens.
    """
    if model.task != "seq2seq":
        raise UserError(
            f"Generation from an encoder needs a sequence-to-sequence model. {model.name} is a {model.task} model."
        )
    return _written(model, rows, [longest] * len(rows), "Writing", beams=beams, token_budget=token_budget)


def as_model_writes(model: Model, texts: Sequence[str]) -> list[str]:
    """Texts of the model's output language, normalised like its tokenizer's training targets.

    A perfect model can produce no other form: if the tokenizer normalises to NFKC, `℃` becomes `°C`, and if it
    lower-cases, capitals are lost.
    """
    tokenizer = model.target_tokenizer or model.require_tokenizer()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        normalise = backend.normalizer.normalize_str if backend.normalizer is not None else str
    else:  # sentencepiece itself, of the target side if there are two
        pieces = (getattr(tokenizer, name, None) for name in ("spm_target", "sp_model"))
        normalise = next((one.normalize for one in pieces if hasattr(one, "normalize")), str)
    # Some normalisers write the space as sentencepiece does.
    return [" ".join(normalise(text).replace("▁", " ").split()) for text in texts]


def _written(
    model: Model,
    rows: Sequence[Sequence[int]],
    longest: Sequence[int],
    task: str,
    *,
    beams: int,
    token_budget: int,
    **options: Any,
) -> list[str]:
    """Texts generated for the rows, each within its own token limit."""
    target_tokenizer = model.target_tokenizer or model.require_tokenizer()
    texts = [""] * len(rows)
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    most = torch.tensor(longest)
    if model.max_target_tokens is not None:
        most = most.clamp(max=model.max_target_tokens - 1)
    settings = {"num_beams": beams, "do_sample": False, **_tokens(model), **options}
    with (
        torch.inference_mode(),
        without_remarks(),
        current_display().progress(task, len(rows), unit="sentences") as bar,
    ):
        for batch in length_batches(lengths, token_budget, max_sentences=None if model.pads else 1):
            ids, mask = pad_rows([rows[row] for row in batch], model.pad_token_id)
            limits = most[torch.as_tensor(batch)].repeat_interleave(beams)
            output = _generate(
                model,
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=int(limits.max()),
                logits_processor=LogitsProcessorList([_EndAt(limits.to(model.device), settings.get("eos_token_id"))]),
                **settings,
            )
            decoded = target_tokenizer.batch_decode(output, skip_special_tokens=True)
            for row, text in zip(batch, decoded, strict=True):
                texts[row] = text.strip()
            bar.advance(len(batch))
    return texts


def _generate(model: Model, **inputs: Any) -> Tensor:
    """The output of `generate`; for SeamlessM4T its text, since the model's own method goes on to speech."""
    if str(getattr(model.module.config, "model_type", "")).startswith("seamless_m4t"):
        return GenerationMixin.generate(model.module, **inputs)  # type: ignore[arg-type]
    return model.module.generate(**inputs)


def _tokens(model: Model) -> dict[str, int]:
    """Start, end and padding of the output; if a matched model's configuration has no end, the tokenizer's is used."""
    tokenizer = model.target_tokenizer or model.require_tokenizer()
    tokens = {
        "decoder_start_token_id": start_token_id(model),
        "pad_token_id": model.pad_token_id,
        **_language_token(tokenizer),
    }
    end = end_token(model)
    return tokens if end is None else tokens | {"eos_token_id": end}


def end_token(model: Model) -> int | list[int] | None:
    """The token that ends the output, or several of them; None if there is none."""
    tokenizer = model.output_tokenizer or model.require_tokenizer()
    candidates = (
        getattr(model.module.generation_config, "eos_token_id", None),
        getattr(model.module.config, "eos_token_id", None),
        tokenizer.eos_token_id,
        tokenizer.sep_token_id,
    )
    return next((token for token in candidates if token is not None), None)


def _language_token(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The token of the target language, if known.

    It is the first output token, or, if targets end with it as in mBART, the decoder's start token.
    """
    code = reading_of(tokenizer).target_language
    if not code:
        return {}
    token = language_id(tokenizer, code)
    ends_with_it = tokenizer(text_target="a")["input_ids"][-1] == token
    return {"decoder_start_token_id" if ends_with_it else "forced_bos_token_id": token}


class _EndAt:
    """Ends each hypothesis at its own sentence's limit; `generate` has one limit for the whole batch."""

    def __init__(self, limits: Tensor, end: int | list[int] | None) -> None:
        self.limits = limits
        self.end = end[0] if isinstance(end, list) else end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        over = input_ids.shape[1] >= self.limits
        if self.end is None or not bool(over.any()):
            return scores
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end] = 0
        return torch.where(over[:, None], ended, scores)
