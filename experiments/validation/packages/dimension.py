"""Intrinsic dimension beside scikit-dimension and DADApy, on manifolds of known dimension."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rows import Array, Row, Sources, largest

from infoflow.representations import two_nn_dimension

POINTS = 4000
IN_DADAPY = """
import json, sys
import numpy as np
from dadapy import Data
clouds = np.load(sys.argv[1])
print(json.dumps({
    name: {way: float(Data(clouds[name], maxk=10).compute_id_2NN(algorithm=way)[0]) for way in ("base", "ml")}
    for name in clouds.files
}))
"""


def manifolds() -> dict[str, tuple[Array, float]]:
    """Points and dimension, by name: balls, a sphere, a Gaussian and a rolled plane, all turned into 30 dimensions."""
    import skdim.datasets

    draw = np.random.default_rng(0)
    angle = 1.5 * np.pi * (1 + 2 * draw.random(POINTS))
    roll = np.stack([angle * np.cos(angle), 21 * draw.random(POINTS), angle * np.sin(angle)], axis=1)
    flat = {f"ball of {d} dimensions": (skdim.datasets.hyperBall(POINTS, d, random_state=d), d) for d in (1, 2, 5, 10)}
    flat["sphere of 4 dimensions"] = (skdim.datasets.hyperSphere(POINTS, 4, random_state=0), 4)
    flat["Gaussian of 3 dimensions"] = (draw.standard_normal((POINTS, 3)), 3)
    flat["rolled plane"] = (roll, 2)
    turned = {}
    for name, (points, dimension) in flat.items():
        basis = np.linalg.qr(draw.standard_normal((30, points.shape[1])))[0]
        turned[name] = (points @ basis.T, float(dimension))
    return turned


def scikit_dimension(sources: Sources) -> Iterator[Row]:
    """Both estimates by two neighbours, and the truth."""
    import skdim.id

    clouds = manifolds()
    ours = {m: [two_nn_dimension(x, method=m) for x, _ in clouds.values()] for m in ("linear", "mle")}
    theirs = {
        "linear": [skdim.id.TwoNN(discard_fraction=0.1).fit(x).dimension_ for x, _ in clouds.values()],
        "mle": [skdim.id.TwoNN(discard_fraction=0, method="mle").fit(x).dimension_ for x, _ in clouds.values()],
    }
    yield from _estimates("scikit-dimension", ours, theirs)
    true = np.array([dimension for _, dimension in clouds.values()])
    low = true <= 5
    for method, values in ours.items():
        error = np.abs(np.array(values) / true - 1)
        yield Row(
            function="representations.two_nn_dimension",
            package="scikit-dimension",
            compared=f"Its manifolds of 1 to 5 dimensions, {POINTS} points: relative error of method {method}",
            difference=float(error[low].max()),
            tolerance=0.1,
            right=f"both: {_listed(values, true)}. With ten dimensions every estimate by neighbours is low",
        )


def _listed(values: list[float], true: Array) -> str:
    return ", ".join(f"{value:.2f} of {dimension:g}" for value, dimension in zip(values, true, strict=True))


def _estimates(package: str, ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> Iterator[Row]:
    num = len(ours["linear"])
    yield Row(
        function="representations.two_nn_dimension",
        package=package,
        compared=f"Linear fit without the largest tenth: {num} manifolds, {POINTS} points",
        difference=largest(ours["linear"], theirs["linear"], relative=True),
        tolerance=1e-6,
    )
    unbiased = [value * (POINTS - 1) / POINTS for value in ours["mle"]]
    yield Row(
        function="representations.two_nn_dimension",
        package=package,
        compared=f"Maximum likelihood times (N - 1) / N: {num} manifolds, {POINTS} points",
        difference=largest(unbiased, theirs["mle"], relative=True),
        tolerance=1e-5,
        right=f"both: ours is the maximum, N over the sum of logarithms; {package} gives the unbiased (N - 1) over it, "
        "which is 1/N less",
    )


def dadapy(sources: Sources) -> Iterator[Row]:
    """DADApy has an environment of its own, because it needs an older NumPy. Points travel as a file."""
    clouds = {name: points for name, (points, _) in manifolds().items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clouds.npz"
        np.savez(path, **clouds)
        command = [str(sources.dadapy), "-c", IN_DADAPY, str(path)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    ours = {m: [two_nn_dimension(points, method=m) for points in clouds.values()] for m in ("linear", "mle")}
    theirs = {"linear": [found[name]["base"] for name in clouds], "mle": [found[name]["ml"] for name in clouds]}
    yield from _estimates("dadapy", ours, theirs)
