r"""Answers of a sequence-to-sequence reader with several passages: RAG-Token and RAG-Sequence decoding.

| decoding               | what is searched for                                                                   |
|------------------------|----------------------------------------------------------------------------------------|
| `rag_token_answer`     | one beam search with \(\sum_z \pi(z) \, p(y_i \mid x, z, y_{<i})\)                     |
| `rag_sequence_answer`  | a beam search per passage, then \(\sum_z \pi(z) \, p(y \mid x, z)\) of every hypothesis |

Source: [@lewis2020rag]. Hugging Face's RAG classes are not used: their sequence likelihood drops the prior for
one-token answers, and their thorough decoding sums logarithms instead of probabilities.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Numbers

NextTokens = Callable[[Int[Tensor, "prefix token"]], Float[Tensor, "passage prefix vocabulary"]]
"""log p of every next token under each passage, for prefixes of equal length that begin with the start token."""
Decoding = Literal["thorough", "fast"]


class DecodedAnswer(NamedTuple):
    """A decoded answer."""

    tokens: tuple[int, ...]  # without start and end
    log_probability: float  # of the answer, marginalised over passages; for RAG-Token, the sum over tokens


class SearchLimits(NamedTuple):
    """Limits of a search."""

    start: int  # id that starts every decoder input
    end: int
    beams: int = 4
    max_tokens: int = 32  # of an answer, without its end


@torch.no_grad()
def rag_token_answer(next_tokens: NextTokens, prior: Tensor, limits: SearchLimits) -> DecodedAnswer:
    """The best answer of a beam search that marginalises over passages at each token; `prior` (passage,) sums to 1."""
    log_prior = prior.log()[:, None, None]

    def mixed(prefixes: Tensor) -> Tensor:
        return (log_prior + next_tokens(prefixes)).logsumexp(dim=0)

    return _beam_search(mixed, limits)[0]


@torch.no_grad()
def rag_sequence_answer(
    next_tokens: NextTokens, prior: Tensor, limits: SearchLimits, decoding: Decoding = "thorough"
) -> DecodedAnswer:
    """The best of all passages' hypotheses by the likelihood marginalised over passages, see `rescore_hypotheses`."""
    beams: list[list[DecodedAnswer]] = []
    for passage in range(len(prior)):
        beams.append(_beam_search(lambda prefixes, one=passage: next_tokens(prefixes)[one], limits))
    hypotheses = sorted({answer.tokens for beam in beams for answer in beam})
    generated = torch.tensor([[one in {answer.tokens for answer in beam} for one in hypotheses] for beam in beams])
    if decoding == "fast":  # only likelihoods known from the beams count
        known = [{answer.tokens: answer.log_probability for answer in beam} for beam in beams]
        logs = torch.tensor([[beam.get(one, float("nan")) for one in hypotheses] for beam in known], dtype=prior.dtype)
    else:
        logs = torch.stack([_sequence_logs(next_tokens, one, limits) for one in hypotheses], dim=1).to(prior.dtype)
    found = rescore_hypotheses(prior.cpu(), logs.cpu(), generated, decoding)
    best = int(found.argmax())
    return DecodedAnswer(hypotheses[best], float(found[best].log()))


def reader_with_passages(
    model: Any,
    input_ids: Int[Tensor, "passage token"],
    attention_mask: Int[Tensor, "passage token"] | None = None,
    **others: Tensor,
) -> NextTokens:
    """`NextTokens` of a Hugging Face encoder-decoder, which encodes a question with each passage (`input_ids`) once."""
    with torch.no_grad():
        encoded = model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **others)
    states, num = encoded.last_hidden_state, len(input_ids)

    def next_tokens(prefixes: Tensor) -> Tensor:
        # Every prefix with every passage: (passage, prefix) flattened.
        read = states.repeat_interleave(len(prefixes), dim=0)
        mask = None if attention_mask is None else attention_mask.repeat_interleave(len(prefixes), dim=0)
        output = model(
            encoder_outputs=type(encoded)(last_hidden_state=read),
            attention_mask=mask,
            decoder_input_ids=prefixes.to(states.device).repeat(num, 1),
            use_cache=False,
        )
        return output.logits[:, -1].log_softmax(dim=-1).unflatten(0, (num, len(prefixes)))

    return next_tokens


def sequence_log_likelihoods(
    model: Any,
    input_ids: Int[Tensor, "query candidate token"],
    attention_mask: Int[Tensor, "query candidate token"],
    answers: Int[Tensor, "query target"],
    start: int,
) -> Float[Tensor, "query candidate target"]:
    r"""\(\log p(y_j \mid z, x, y_{<j})\) of an encoder-decoder, differentiable, for `marginal_log_likelihood`.

    `answers` end with the end token; the decoder's input begins with `start`.
    """
    num_queries, num_candidates = input_ids.shape[:2]
    shifted = torch.cat([answers.new_full((num_queries, 1), start), answers[:, :-1]], dim=1)
    logits = model(
        input_ids=input_ids.flatten(0, 1),
        attention_mask=attention_mask.flatten(0, 1),
        decoder_input_ids=shifted.repeat_interleave(num_candidates, dim=0),
        use_cache=False,
    ).logits
    predicted = logits.log_softmax(dim=-1).unflatten(0, (num_queries, num_candidates))
    wanted = answers[:, None, :, None].expand(-1, num_candidates, -1, -1)
    return predicted.gather(-1, wanted)[..., 0]


def _beam_search(next_tokens: Callable[[Tensor], Tensor], limits: SearchLimits) -> list[DecodedAnswer]:
    """Finished answers by falling log-probability, at most as many as beams. There is no length penalty; the lower
    token wins ties.
    """
    if limits.beams < 1 or limits.max_tokens < 1:
        raise UserError(f"beams and max_tokens must be at least 1. Got {limits.beams} and {limits.max_tokens}.")
    live: list[DecodedAnswer] = [DecodedAnswer((), 0.0)]
    finished: list[DecodedAnswer] = []
    for length in range(limits.max_tokens + 1):
        prefixes = torch.tensor([[limits.start, *one.tokens] for one in live])
        logs = next_tokens(prefixes).double().cpu()
        ended = logs[:, limits.end].tolist()
        finished += [DecodedAnswer(one.tokens, one.log_probability + log) for one, log in zip(live, ended, strict=True)]
        finished = sorted(finished, key=lambda one: (-one.log_probability, one.tokens))[: limits.beams]
        live = _extended(live, logs, limits) if length < limits.max_tokens else []
        # A continuation cannot overtake the finished answers above it, since probabilities only fall.
        enough = len(finished) == limits.beams
        live = [one for one in live if not enough or one.log_probability > finished[-1].log_probability]
        if not live:
            break
    return finished


def _extended(live: Sequence[DecodedAnswer], logs: Tensor, limits: SearchLimits) -> list[DecodedAnswer]:
    """The best unfinished continuations."""
    scores = logs + torch.tensor([one.log_probability for one in live], dtype=logs.dtype)[:, None]
    scores[:, limits.end] = float("-inf")
    values, places = scores.flatten().sort(descending=True, stable=True)
    kept = zip(values[: limits.beams].tolist(), places[: limits.beams].tolist(), strict=True)
    width = logs.shape[1]
    return [
        DecodedAnswer((*live[place // width].tokens, place % width), value) for value, place in kept if value > -1e300
    ]


def _sequence_logs(next_tokens: NextTokens, tokens: tuple[int, ...], limits: SearchLimits) -> Tensor:
    """log p of a whole answer, its end included, under each passage."""
    total: Any = 0.0
    for index, token in enumerate((*tokens, limits.end)):
        prefix = torch.tensor([[limits.start, *tokens[:index]]])
        total = total + next_tokens(prefix)[:, 0, token].double()
    return total


def rescore_hypotheses(
    prior: Numbers, log_likelihoods: Numbers, generated: Numbers, decoding: Decoding = "thorough"
) -> Float[Tensor, " hypothesis"]:
    r"""\(p(y \mid x) = \sum_z \pi(z) \, p(y \mid x, z)\) of each hypothesis.

    `prior` is (passage,), `log_likelihoods` of whole hypotheses (passage, hypothesis). Thorough decoding scores every
    hypothesis under every passage; fast decoding sets \(p(y \mid x, z)\) to 0 if y was not in the beam of z
    (`generated`), and never reads those likelihoods (they may be NaN). Their choices can differ ([@lewis2020rag]).
    """
    prior_P, likelihoods_PH = torch.as_tensor(prior), torch.as_tensor(log_likelihoods)
    generated_PH = torch.as_tensor(generated)
    if likelihoods_PH.ndim != 2 or prior_P.shape != likelihoods_PH.shape[:1]:
        raise UserError(
            "log_likelihoods must be (passage, hypothesis) and prior (passage,). "
            f"Got {tuple(likelihoods_PH.shape)} and {tuple(prior_P.shape)}."
        )
    if generated_PH.dtype != torch.bool or generated_PH.shape != likelihoods_PH.shape:
        raise UserError(f"generated must be bool of shape {tuple(likelihoods_PH.shape)}. Got {generated_PH.dtype}.")
    if not torch.isclose(prior_P.sum(), prior_P.new_ones(()), atol=1e-4) or bool((prior_P < 0).any()):
        raise UserError(f"prior must sum to 1: pass softmax output. Got a sum of {float(prior_P.sum()):.4g}.")
    if decoding not in ("thorough", "fast"):
        raise UserError(f'decoding must be "thorough" or "fast". Got {decoding!r}.')
    if decoding == "fast":
        likelihoods_PH = torch.where(generated_PH, likelihoods_PH, float("-inf"))
    return (prior_P[:, None] * likelihoods_PH.exp()).sum(dim=0)
