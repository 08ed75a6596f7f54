"""Claims about information-flow routes: routes:R1 to R5."""

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._curves import exceeds_others
from infoflow.findings._finding import GAIN, SHARE, Condition, Curves, Given, claim, exceeds
from infoflow.findings._head_numbers import heads, held_out, largest
from infoflow.findings._model_group import CAUSAL, MASKED, TRANSLATION, Absent
from infoflow.findings._sources import OURS, Source
from infoflow.findings._table import Reading, SeedRows, Table, mean_number, together
from infoflow.heads import HEAD_POSITIONAL
from infoflow.results import Spec

from .measures import ROUTE_IMPORTANCE
from .measures._importance import ALL, IMPORTANCE, ROUTE
from .measures._route import HEAD, RESIDUAL

_ROUTES = Source(
    "Ferrando and Voita 2024, Information Flow Routes: Automatically Interpreting Language Models at Scale, EMNLP",
    "abstract",
)
_LLAMA = "Llama 2 7B, without numbers in the abstract"
_EXTERNAL = Given(tasks=("causal-lm",))
_PLACE = ["layer", "head"]


def _heads(**settings: object) -> Table:
    """The share of predictions on whose route each head of a causal LM lies."""
    table = Table(ROUTE_IMPORTANCE.name, CAUSAL, needs=(*_PLACE, "baseline"), known=True)
    return table.where(sublayer="self", part=HEAD, measure=ROUTE, **settings)


def _most(rows: SeedRows) -> np.ndarray:
    return largest(rows.numbers)


_EVERY = _heads(tag=ALL)


@claim(
    "routes:R1",
    "Some head of a causal LM is important in general: it lies on the routes of most predictions.",
    source=_ROUTES,
    published=f"{_LLAMA}: the role of some attention heads is overall important",
    statistic="largest share of predictions on whose route a head lies, over all heads: above one half; the head is "
    "chosen on one half of the sentences and measured on the other",
    reads={"most": _EVERY.reduce(_most)},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def r1(curves: Curves) -> list[Condition]:
    """Condition on the head of the causal LM that lies on most routes."""
    return [exceeds("predictions with the head on their route", curves["most"], 0.5, "share", bounds=SHARE)]


def _previous(routes: SeedRows, positions: SeedRows) -> np.ndarray:
    """Share of routes through the head that looks at the previous token most, minus the mean over heads, (1 + R, 1)."""
    shares = {index: column for column, index in enumerate(_places(routes))}
    if missing := set(_places(positions)) - shares.keys():
        raise Absent(f"{ROUTE_IMPORTANCE.name} lacks head {min(missing)} of {HEAD_POSITIONAL.name}")
    head = _places(positions)[int(held_out(positions.numbers)[0].argmax())]
    _, later = held_out(routes.numbers)
    return later[:, [shares[head]]] - later.mean(axis=1, keepdims=True)


def _places(rows: SeedRows) -> list[tuple[int, ...]]:
    return list(rows.frame[_PLACE].itertuples(index=False, name=None))


@claim(
    "routes:R2",
    "The head of a causal LM that looks most at the previous token lies on more routes than the mean head.",
    source=_ROUTES,
    published=f"{_LLAMA}: previous-token heads are among the heads that are overall important",
    statistic="share of predictions on whose route that head lies, minus the mean over all heads: above 0; the head is "
    "chosen on one half of the sentences, and routes are counted on the other",
    reads={"gain": together(_previous, _EVERY, heads(HEAD_POSITIONAL.name, CAUSAL, stack="decoder", offset=-1))},
)
def r2(curves: Curves) -> list[Condition]:
    """Condition on the routes through the causal LM's previous-token head."""
    return [exceeds("routes with the head beyond those with a mean head", curves["gain"], 0.0, "share", bounds=GAIN)]


def _specialised(rows: SeedRows) -> np.ndarray:
    return largest(rows.numbers - rows.column("baseline"))


@claim(
    "routes:R3",
    "Some head of a causal LM is specialised: it lies on many more routes of one part of speech than of all "
    "predictions.",
    source=_ROUTES.beyond,
    published=f"{_LLAMA}: some components are specialised on domains such as code or other languages; the model "
    "handles tokens of the same part of speech similarly",
    statistic="share of the predictions of one part of speech on whose route a head lies, minus that share of all "
    "predictions: above .1 for some head and part of speech, which are chosen on one half of the sentences and "
    "measured on the other",
    reads={"gain": _heads(annotation="upos", tag=...).reduce(_specialised)},
    minimum_seeds=1,
    given=_EXTERNAL,
)
def r3(curves: Curves) -> list[Condition]:
    """Condition on the causal LM's head whose share of routes differs most between parts of speech."""
    return [exceeds("routes of one part of speech beyond all", curves["gain"], 0.1, "share", bounds=GAIN)]


def _importance(part: str, objective: Spec) -> Table:
    table = Table(ROUTE_IMPORTANCE.name, objective, needs=("layer", "head"), known=True)
    return table.where(part=part, measure=IMPORTANCE, tag=ALL)


def _over_layers(rows: SeedRows) -> np.ndarray:
    """The importance of all heads of a layer together, averaged over layers, (1 + R, 1)."""
    return np.stack([own.numbers.sum(axis=1) for _, own in rows.groups("layer")], axis=1).mean(axis=1, keepdims=True)


_SEEN = "none: the source compares no objectives; seen in the seeds 31 to 33 of experiments/studies/after-the-seeds"
_OBJECTIVES = (MASKED, CAUSAL, TRANSLATION)
_HEADS: dict[str, Reading] = {
    one.name: _importance(HEAD, one).where(sublayer="self").reduce(_over_layers) for one in _OBJECTIVES
}
_RESIDUALS: dict[str, Reading] = {one.name: _importance(RESIDUAL, one).reduce(mean_number) for one in _OBJECTIVES}


@claim(
    "routes:R4",
    "Heads are more important for the predictions of a masked LM than for those of a causal LM or for the states of a "
    "translation encoder.",
    source=OURS,
    published=_SEEN,
    statistic="importance of all heads of a layer, averaged over layers: masked LM minus causal LM, and masked LM "
    "minus translation encoder, both above 0",
    reads=_HEADS,
    controls=(seeds_alone(_HEADS, *_HEADS),),
)
def r4(curves: Curves) -> list[Condition]:
    """Conditions that compare the importance of heads between objectives."""
    return exceeds_others("importance beyond that in the", curves, MASKED, (CAUSAL, TRANSLATION))


@claim(
    "routes:R5",
    "Residual connections carry more of the states of a translation encoder than of those of language models.",
    source=OURS,
    published=_SEEN,
    statistic="importance of residual connections, averaged over blocks: translation encoder minus causal LM, and "
    "translation encoder minus masked LM, both above 0",
    reads=_RESIDUALS,
    controls=(seeds_alone(_RESIDUALS, *reversed(_RESIDUALS)),),
)
def r5(curves: Curves) -> list[Condition]:
    """Conditions that compare residual connections between objectives."""
    return exceeds_others("importance beyond that in the", curves, TRANSLATION, (CAUSAL, MASKED))
