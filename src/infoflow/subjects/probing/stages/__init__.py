"""Probes of a study's models, of given models, and scores of text pairs."""

from ._probe import probe
from ._probe import score_pairs as score_pairs
from ._probe_model import (
    SENTENCES,
    AbstractProbing,
    ProbeModel,
    check_checkpoints,
    prepared,
    probing_measures,
    requested,
    requested_corpus,
)

STAGES = ((70, ProbeModel),)
