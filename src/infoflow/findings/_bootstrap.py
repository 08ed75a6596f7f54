"""The hierarchical bootstrap: seeds are drawn again, and so are sentences."""

from collections.abc import Mapping

import numpy as np

from infoflow.foundation import stream

from ._panel import Draws, Panel

NUM_DRAWS = 2000  # ten for each of 200 sentence replicates, so that the tails of a corrected interval are smooth


def draw(num_seeds: int, num_replicates: int, num: int = NUM_DRAWS) -> Draws:
    """`num` draws of `num_seeds` seeds with replacement, each with one sentence replicate, in turn.

    Sentence replicate r uses the same sentence weights for every model, so differences between models stay paired.
    The same draws serve every claim. With three seeds only ten multisets exist, so the seeds' part of an interval is
    coarse; the findings table lists each seed's own effect beside it.
    """
    drawn_NS = stream("findings", "seeds", num_seeds).integers(num_seeds, size=(num, num_seeds))
    counts_NS = (drawn_NS[:, :, None] == np.arange(num_seeds)).sum(axis=1)
    return Draws(counts_NS=counts_NS, sentence_N=np.arange(num) % num_replicates)


def resampled_curves(panels: Mapping[str, Panel], seeds: list[int]) -> dict[str, np.ndarray]:
    """Each panel as rows of curves: first the mean over seeds, then each seed alone, then the bootstrap draws.

    A claim's statistic is a function of one row, so one call gives its estimate, its value for each seed, and its
    bootstrap distribution. It is taken of curves averaged over the (drawn) seeds, as a figure shows them.
    """
    common = min(panel.num_replicates for panel in panels.values())
    draws = draw(len(seeds), common)
    return {
        name: np.concatenate(
            [p.estimate(), *(p.alone(seed) for seed in seeds), p.recentred(common).drawn(seeds, draws)]
        )
        for name, p in panels.items()
    }
