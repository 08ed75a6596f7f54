"""An alignment with its controls."""

import dataclasses
from pathlib import Path

from infoflow.corpus import Corpus
from infoflow.models import Model

from ._encoders import AlignedEncoder
from ._explicit import ExplicitConfig, align_explicit, initial_encoder
from ._held_out import linked_vectors
from ._linear_map import least_squares_map
from ._linked_sentences import LinkedSentences
from ._links import AbstractWordLinks, IdentityLinks, ShuffledLinks
from ._table import Kind

FITTED_WORDS = 20_000
"""Maximum number of words for fitting the linear map of the unaligned encoder."""


def align_with_controls(
    source: Model,
    target: Model,
    corpus: Corpus,
    out: Path | str,
    *,
    links: AbstractWordLinks | None = None,
    translated: bool = False,
    config: ExplicitConfig | None = None,
) -> dict[Kind, AlignedEncoder]:
    """The explicit alignment and three control encoders; arguments as in `align_explicit`.

    | kind               | encoder                   | map                   | what shows in it            |
    |--------------------|---------------------------|-----------------------|-----------------------------|
    | `aligned`          | trained on the links      | trained with it       |                             |
    | `unaligned`        | as it was                 | least squares, same links | what a map alone does   |
    | `shuffled`         | trained on wrong links    | trained with it       | what any such training does |
    | `regulariser only` | trained to stay as it was | the same, from random | what training itself does   |
    """
    config, links, out = config or ExplicitConfig(), links or IdentityLinks(), Path(out)
    shuffled = ShuffledLinks(seed=config.seed)
    alone = dataclasses.replace(config, attraction=0.0)
    runs: dict[Kind, tuple[AbstractWordLinks, ExplicitConfig]] = {
        "aligned": (links, config),
        "shuffled": (shuffled, config),
        "regulariser only": (links, alone),
    }
    aligned = {
        kind: align_explicit(
            source, target, corpus, out / kind.replace(" ", "-"), links=own, translated=translated, config=settings
        )
        for kind, (own, settings) in runs.items()
    }
    sentences = LinkedSentences(source, target, corpus, links, translated=translated, max_length=config.max_length)
    return aligned | {"unaligned": linearly_aligned(source, target, sentences, config)}


def linearly_aligned(
    source: Model, target: Model, sentences: LinkedSentences, config: ExplicitConfig, words: int = FITTED_WORDS
) -> AlignedEncoder:
    """The unchanged source encoder, under the linear map with the least squared error on `words` linked words."""
    before = initial_encoder(source, target, config)
    fitted = least_squares_map(*linked_vectors(sentences, before, target, words))
    return AlignedEncoder(before.encoder, fitted.module().to(before.encoder.device), config.merge).eval()
