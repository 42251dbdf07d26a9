"""Chi-square tests of counts against a law, and of pairs against independence.

Seeds are fixed, so every p-value is the same on every run: REJECT only has to be rarer than the number of statistics
in all tests (a few hundred), so that no choice of seeds was needed to pass, and common under a real fault.
"""

import numpy as np
from scipy import stats
from torch import Tensor

REJECT = 1e-5


def fits(tokens: Tensor, probs: Tensor) -> float:
    """p-value of tokens [n] drawn from probs [vocab]; cells expected below 5 are pooled."""
    probs = probs.double() / probs.double().sum()
    counts = np.bincount(tokens.flatten().numpy(), minlength=len(probs)).astype(float)
    expected = probs.numpy() * counts.sum()
    if counts[expected == 0].any():
        return 0.0
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    kept = expected > 0
    return float(stats.chisquare(counts[kept], expected[kept]).pvalue)


def independent(left: Tensor, right: Tensor, num_cells: int) -> float:
    """p-value of left [n] and right [n], both in 0..num_cells - 1, having nothing to do with each other."""
    table = np.bincount((left * num_cells + right).numpy(), minlength=num_cells**2).reshape(num_cells, num_cells)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    return float(stats.chi2_contingency(table).pvalue)
