"""Description lengths of labels that are known to be easy, and whether the variational probe's training is finished.

python experiments/validation/codelength/run.py
"""

from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import torch

from infoflow.probing import DescriptionLength, VariationalTraining, online_codelength, variational_codelength

HERE = Path(__file__).parent
POINTS, WIDTH, CLASSES, SEEDS = 3_000, 8, 4, (0, 1)
TRAININGS = ((1e-3, 200), (1e-3, 400), (1e-3, 800), (1e-2, 50), (1e-2, 100), (1e-2, 200))  # rate and epochs


def labelled(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal features; the label is two signs (easy), or random (nothing to learn)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((POINTS, WIDTH)).astype(np.float32)
    y = (x[:, 0] > 0) + 2 * (x[:, 1] > 0) if kind == "two signs" else rng.integers(CLASSES, size=POINTS)
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


def rows() -> list[dict[str, float | str]]:
    found: list[dict[str, float | str]] = []
    for kind in ("two signs", "random"):
        x, y = labelled(kind)
        for hidden in ((), (256, 256)):
            name = {"labels": kind, "probe": "hidden layers" if hidden else "linear"}
            start = process_time()
            online = online_codelength(x, y, CLASSES, SEEDS, hidden=hidden)
            found.append(name | {"rate": 1e-3, "epochs": np.nan} | _row("online", online, process_time() - start))
            for rate, epochs in TRAININGS if kind == "two signs" else TRAININGS[4:5]:
                start = process_time()
                training = VariationalTraining(rate=rate, epochs=epochs)
                code = variational_codelength(x, y, CLASSES, SEEDS, hidden=hidden, training=training)
                keys = name | {"rate": rate, "epochs": epochs}
                found.append(keys | _row("variational", code, process_time() - start))
                print(found[-1], flush=True)
    return found


def _row(code: str, length: DescriptionLength, seconds: float) -> dict[str, float | str]:
    bits, data = np.asarray(length.bits), np.asarray(length.data_bits)
    return {
        "code": code,
        "bits": bits.mean(),
        "model_bits": (bits - data).mean() if code == "variational" else np.nan,
        "label_bits": data.mean() if code == "variational" else np.nan,
        "seed_range": np.ptp(bits),
        "uniform_bits": length.uniform_bits,
        "cpu_seconds": seconds,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    pd.DataFrame(rows()).round(3).to_csv(HERE / "lengths.csv", index=False)
