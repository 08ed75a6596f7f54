"""Similarities of two views beside netrep, ReSi and rsatoolbox."""

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from rows import Array, Row, Sources, largest, unit_variance, views, worst

from infoflow.representations import cca_correlations, linear_cka, procrustes_distance, pwcca, rsa, svcca

ANGLE = 1e-6  # the slope of arccos is infinite at 1


def netrep(sources: Sources) -> Iterator[Row]:
    """Distances after the best rotation, with and without whitening, and CKA as an angle."""
    sys.path.insert(0, str(sources.netrep))
    from netrep.metrics import LinearMetric
    from netrep.metrics.cka import LinearCKA

    for kind, method in (("angle", "angular"), ("size-and-shape", "euclidean")):
        for alpha in (1.0, 0.5, 0.0):
            # Full whitening of a view that is padded with zeros is undefined in netrep.
            found = {name: pair for name, pair in views().items() if alpha == 1 or name == "500 rows of width 20"}
            difference = worst(
                largest(
                    procrustes_distance(x, y, kind=kind, alpha=alpha),
                    LinearMetric(alpha=alpha, score_method=method).fit_score(x, y),
                )
                for x, y in found.values()
            )
            yield Row(
                function="representations.procrustes_distance",
                package="netrep",
                compared=f"kind {kind}, alpha {alpha:g}: {_pairs(len(found))}",
                difference=difference,
                tolerance=1e-8,
            )
    yield Row(
        function="representations.linear_cka",
        package="netrep",
        compared="LinearCKA, an angle, against the arc cosine of ours: 3 pairs of views",
        difference=worst(largest(np.arccos(linear_cka(x, y)), LinearCKA().score(x, y)) for x, y in views().values()),
        tolerance=ANGLE,
    )


def _pairs(num: int) -> str:
    return f"{num} pairs of views" if num > 1 else "a pair of views"


def resi(sources: Sources) -> Iterator[Row]:
    """Every similarity that both have, and two of ReSi's that depart from their papers."""
    measure = partial(_of_resi, sources)
    row = partial(Row, package="ReSi")
    plain: list[tuple[str, str, Callable[..., float], Callable[..., float]]] = [
        ("linear_cka", "CKA", linear_cka, measure("cka", "centered_kernel_alignment")),
        (
            "procrustes_distance",
            "OrthogonalAngularShapeMetricCentered",
            procrustes_distance,
            measure("procrustes", "orthogonal_angular_shape_metric_centered"),
        ),
        (
            "procrustes_distance",
            "ProcrustesSizeAndShapeDistance",
            partial(procrustes_distance, kind="size-and-shape"),
            measure("procrustes", "procrustes_size_and_shape_distance"),
        ),
        (
            "rsa",
            "RSA, correlation",
            partial(rsa, metric="correlation"),
            measure("rsa", "representational_similarity_analysis"),
        ),
        (
            "rsa",
            "RSA, euclidean",
            partial(rsa, metric="euclidean"),
            partial(measure("rsa", "representational_similarity_analysis"), inner="euclidean"),
        ),
    ]
    for name, theirs, ours, other in plain:
        difference = worst(largest(ours(x, y), other(x, y, "nd")) for x, y in views().values())
        yield row(
            function=f"representations.{name}",
            compared=f"{theirs}: 3 pairs of views",
            difference=difference,
            tolerance=1e-8,
        )
    yield from _resi_cca(measure, row)
    yield from _resi_svcca(measure("cca", "svcca"), row)
    yield from _resi_pwcca(measure("cca", "pwcca"), row)


def _of_resi(sources: Sources, module: str, name: str) -> Any:
    """A function of ReSi's, without the packages that its other measures need."""
    if "repsim.measures" not in sys.modules:
        for package in ("repsim", "repsim.measures"):
            empty = types.ModuleType(package)
            empty.__path__ = [str(sources.resi / package.replace(".", "/"))]
            sys.modules[package] = empty
    return getattr(importlib.import_module(f"repsim.measures.{module}"), name)


def _tall() -> list[tuple[Array, Array]]:
    return [pair for name, pair in views().items() if name.startswith("500")]


def _resi_cca(measure: Any, row: Any) -> Iterator[Row]:
    correlations = measure("cca", "get_cca_similarity")
    found = [
        largest(cca_correlations(x, y), correlations(x.T, y.T, verbose=False)["cca_coef1"][: x.shape[1]])
        for x, y in _tall()
    ]
    yield row(
        function="representations.cca_correlations",
        compared="get_cca_similarity, every correlation: 2 pairs of views",
        difference=worst(found),
        tolerance=1e-8,
    )


def _resi_svcca(other: Any, row: Any) -> Iterator[Row]:
    """ReSi compares shares of the variance, at most 1, with .99 times the variance."""
    for name, scaled in (("1", unit_variance), ("100", lambda view: 10 * unit_variance(view)), (".5", _half)):
        pairs = [(scaled(x), scaled(y)) for x, y in _tall()]
        ours, theirs = (
            [float(function(x, y)) for x, y in pairs] for function in (svcca, lambda x, y: other(x, y, "nd"))
        )
        kept = [svcca(*(_first_component(view) for view in pair), variance=1) for pair in pairs]
        difference = largest(ours, theirs)
        why = "both"
        if difference > 1e-8:
            why = (
                f"ours: scaling a view must not change it. ReSi gives {theirs[0]:.4f}, ours {ours[0]:.4f}: it compares "
                "shares of the variance with .99 times the total variance"
            )
            if largest(kept, theirs) < 1e-8:
                why += ", so no share reaches that, and it keeps one component"
        yield row(
            function="representations.svcca",
            compared=f"SVCCA, views of total variance {name}: 2 pairs",
            difference=difference,
            tolerance=1e-8,
            right=why,
        )


def _half(view: Array) -> Array:
    return unit_variance(view) * 0.5**0.5


def _first_component(view: Array) -> Array:
    left, singular, _ = np.linalg.svd(view - view.mean(axis=0), full_matrices=False)
    return left[:, :1] * singular[:1]


def _resi_pwcca(other: Any, row: Any) -> Iterator[Row]:
    """ReSi has the authors' released code, whose directions are not the canonical ones."""
    x, y, mixed = _shared_in_small_directions()
    ours, theirs = pwcca(x, y, side="x"), float(other(x, y, "nd"))
    yield row(
        function="representations.pwcca",
        compared="PWCCA with the weights of the first view, 2,000 rows of width 20",
        difference=abs(ours - theirs),
        tolerance=1e-8,
        right=f"ours: {ours:.4f}, and ReSi {theirs:.4f}. ReSi's directions lack the inverse square root of the "
        "covariance, so they are not the canonical variates by which Morcos et al. (2018) weigh",
    )
    # Only the span of the view that gives no weights counts in the paper.
    ours_moved, theirs_moved = abs(pwcca(x, mixed, side="x") - ours), abs(float(other(x, mixed, "nd")) - theirs)
    yield row(
        function="representations.pwcca",
        compared="PWCCA after an invertible map of the view without weights: change, 0 in the paper",
        difference=abs(ours_moved - theirs_moved),
        tolerance=1e-8,
        right=f"ours: it changes by {ours_moved:.0e}; ReSi changes by {theirs_moved:.4f}, so it is not invariant",
    )
    narrow, wide = _tall()[1]
    try:
        reverse, failed = float(other(wide, narrow, "nd")), "it gives another value"
    except (IndexError, ValueError) as error:
        reverse, failed = float("nan"), f"it ends with {type(error).__name__}"
    yield row(
        function="representations.pwcca",
        compared="PWCCA of a view of width 20 with one of width 12",
        difference=abs(pwcca(wide, narrow, side="y") - reverse),
        tolerance=1e-8,
        right=f"ours: ReSi takes columns of the first view by indices of the second; {failed}",
    )


def _shared_in_small_directions() -> tuple[Array, Array, Array]:
    """Two views that share their directions of small variance, and the second after an invertible map."""
    draw = np.random.default_rng(1)
    latent, noise = draw.standard_normal((2, 2000, 20))
    mixing = [draw.standard_normal((20, 20)) for _ in range(3)]
    strength = np.linspace(0, 3, 20)
    x = latent * np.linspace(3, 0.1, 20) @ np.linalg.qr(mixing[0])[0]
    y = (latent * strength + noise) * np.linspace(0.1, 3, 20) @ np.linalg.qr(mixing[1])[0]
    return x, y, y @ mixing[2]


def rsatoolbox(sources: Sources) -> Iterator[Row]:
    """Rank correlation of dissimilarities, with and without ties; whitened cosine similarity, which is linear CKA."""
    import rsatoolbox.data
    import rsatoolbox.rdm

    def dissimilarities(view: Array, method: str) -> Any:
        return rsatoolbox.rdm.calc_rdm(rsatoolbox.data.Dataset(view), method=method)

    draw = np.random.default_rng(3)
    smooth = [(x[:80], y[:80]) for x, y in views().values()]
    tied = [tuple(draw.integers(0, 3, (80, 4)).astype(float) for _ in range(2))]
    for name, pairs in (("3 pairs of views", smooth), ("views of small integers: many ties", tied)):
        for metric in ("euclidean", "correlation") if pairs is smooth else ("euclidean",):
            found = [
                largest(
                    rsa(x, y, metric=metric),
                    rsatoolbox.rdm.compare(*(dissimilarities(v, metric) for v in (x, y)), method="spearman")[0, 0],
                )
                for x, y in pairs
            ]
            yield Row(
                function="representations.rsa",
                package="rsatoolbox",
                compared=f"calc_rdm {metric}, compare spearman: {name}",
                difference=worst(found),
                tolerance=1e-8,
            )
    found = [
        largest(
            linear_cka(x, y),
            rsatoolbox.rdm.compare(*(dissimilarities(v, "euclidean") for v in (x, y)), method="cosine_cov")[0, 0],
        )
        for x, y in smooth
    ]
    yield Row(
        function="representations.linear_cka",
        package="rsatoolbox",
        compared="calc_rdm euclidean, compare cosine_cov (whitened dissimilarities): 3 pairs of views",
        difference=worst(found),
        tolerance=1e-8,
    )
