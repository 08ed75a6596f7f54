"""Learning rate as a function of the update's number."""

import math

from ._config import TrainConfig


def learning_rate(update: int, config: TrainConfig) -> float:
    r"""The learning rate of update n = 1, 2, ..., with peak p, warm-up w, total N and end value e.

    | schedule       | n <= w  | n > w                                        |
    |----------------|---------|----------------------------------------------|
    | `polynomial`   | p n / w | e + (p - e) (1 - (n - w) / (N - w))^power; e from N on |
    | `linear`       | p n / w | the polynomial of power 1                    |
    | `inverse_sqrt` | p n / w | p sqrt(w / n) (without warm-up, p / sqrt(n)) |
    | `constant`     | p n / w | p                                            |

    The first update uses p / w, not 0. With `count_from="fairseq"` the counter lags one update behind from the second
    on, so p / w is used twice and the end value never.
    """
    assert update >= 1
    n = max(1, update - 1) if config.count_from == "fairseq" else update
    peak, warmup, total = config.learning_rate, config.warmup_updates, config.updates
    if n <= warmup:
        return peak * n / warmup
    if config.schedule == "constant":
        return peak
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / n)
    if n >= total:
        return config.end_learning_rate
    power = config.power if config.schedule == "polynomial" else 1.0
    left = 1 - (n - warmup) / (total - warmup)
    return config.end_learning_rate + (peak - config.end_learning_rate) * left**power
