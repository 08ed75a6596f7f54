"""How much can be removed before it costs too much."""

# P point of a curve, R row of an estimate: the value, then its replicates

import numpy as np


def removable(removed_P: np.ndarray, cost_RP: np.ndarray) -> np.ndarray:
    """Where each row of costs, in units of what is allowed, first exceeds 1; (rows,).

    Args:
        removed_P: Shares removed, rising.
        cost_RP: Costs there; nothing removed costs nothing.
    """
    share_P = np.concatenate([[0.0], removed_P])
    cost_RP = np.concatenate([np.zeros((len(cost_RP), 1)), cost_RP], axis=1)
    found = np.full(len(cost_RP), share_P[-1])
    for row, cost_P in enumerate(cost_RP):
        dear = np.flatnonzero(cost_P > 1)
        if len(dear):
            after, before = dear[0], dear[0] - 1
            part = (1 - cost_P[before]) / (cost_P[after] - cost_P[before])
            found[row] = share_P[before] + part * (share_P[after] - share_P[before])
    return found
