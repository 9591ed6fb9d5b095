"""How long a fit takes on a CPU: a warning before one that takes long.

An evaluation of the objective, its gradient included, visits the pairs of N rows and N_S control
points at each time step of each D module, in a time that grows with their dimensions:

    seconds = c N N_S sum_q T_q d_q / threads
"""

from __future__ import annotations

import warnings

import torch

from finemorphs.sequence import ModuleSequence

__all__ = ["warn_of_a_long_fit"]

_SECONDS = 1.4e-10  # c, measured
_EVALUATIONS, _LONG = 300, 1800.0  # of a fit; seconds
_FEW_CONTROLS = 1000


def warn_of_a_long_fit(
    sequence: ModuleSequence, n_rows: int, n_controls: int, max_iter: int
) -> None:
    """Say so before a fit of more than half an hour, and what would be shorter."""

    def seconds(n_controls: int) -> float:
        work = sum(module.n_steps * module.dim for module in sequence.diffeos)
        return _SECONDS * n_rows * n_controls * work / torch.get_num_threads()

    if seconds(n_controls) * min(_EVALUATIONS, max_iter) <= _LONG:
        return
    ways = ["n_steps=5", "a GPU", "or max_time to end it early"]
    if n_controls > _FEW_CONTROLS:
        ways[0] = f"subset_size={_FEW_CONTROLS} (about {seconds(_FEW_CONTROLS):.2g} s)"
    warnings.warn(
        f"an evaluation of the objective takes about {seconds(n_controls):.2g} s on this CPU "
        f"({n_rows} rows, {n_controls} of them control points), and a fit takes some hundred; "
        f"for a shorter one, give {', '.join(ways)}.",
        stacklevel=4,
    )
