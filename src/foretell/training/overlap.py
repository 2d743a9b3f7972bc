"""Exchanges that run behind other work of their pass, and what data-parallel messages on the same links add.

An exchange of k + d seconds, of which d can run behind h seconds of work, is waited for

    k + max(d - h, 0)

Where the work lasts longer, h - d is slack. Messages on the same links lengthen the whole exchange, hidden or
not, and the slack takes up what it can (`contention_of`).
"""

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Exchanges of one pass by what can hide them; (groups, parts), or (plans, stages)."""

    fixed_s: Array
    """What nothing can hide (k)."""
    hidden_s: Array
    """What runs behind work, as far as that lasts (d)."""
    slack_s: Array
    """What the work lasts longer than that (h - d), as far as it can be of use: between 0 and d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the layers wait for of one parallelism."""

    forward_s: Array
    """Of each part, forward; (groups, parts)."""
    backward_s: Array
    """Of each part, backward; (groups, parts)."""
    tier: Index
    """Outermost tier that the group touches; (groups,)."""
    behind: tuple[Overlap, Overlap] | None = None
    """Forward and backward, what of them can be hidden; None: the passes wait for all that is sent."""
    alone_s: tuple[Array, Array] | None = None
    """Forward and backward, what a pass without another micro-batch's beside it waits for besides; None:
    nothing is hidden there."""


def overlap_of(fixed_s: Num, hidden_s: Array, work_s: Array) -> Overlap:
    """Exchanges of which `hidden_s` run behind `work_s` of work."""
    slack_s = np.clip(work_s - hidden_s, 0.0, hidden_s)
    fixed_s = np.broadcast_to(np.asarray(fixed_s, float), slack_s.shape)
    return Overlap(fixed_s=fixed_s, hidden_s=np.asarray(hidden_s), slack_s=slack_s)


def waited(one: Overlap, work_s: Array) -> Array:
    """Seconds that the pass waits for them: of what can be hidden, what is longer than the work."""
    return np.asarray(one.fixed_s + np.maximum(one.hidden_s - work_s, 0.0))


def scaled(one: Overlap, factor: Num) -> Overlap:
    """All of it times a factor."""
    return Overlap(
        fixed_s=factor * one.fixed_s,
        hidden_s=factor * one.hidden_s,
        slack_s=factor * one.slack_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContendedPass:
    """A pass and messages of others that share its links; arrays are (plans, stages)."""

    longer_s: Array
    """What its own work takes longer."""
    used_s: Array
    """Of the pass, prolonged as it is, what the messages get for themselves."""


def contention_of(
    pass_s: Array, other_s: Array, own: Overlap, still_s: Array | None = None
) -> ContendedPass:
    """What a pass takes longer because others send over the links that its own exchanges use.

    Exchanges (`own`) take k seconds of the pass in sight and d behind work with a slack of l, each times the
    share of the time that the others keep their links in use; the others' messages, `other_s` seconds, are
    under way from the pass's start. While both want a link each has half of it. With messages under way in a
    share f of the time, exchanges take f (k + d) longer:

        longer = f k + max(f d - l, 0)
        used = pass + max(longer - still, 0) - f (k + d)
             = max(pass - still - f d, pass - still - l, pass - f (k + d))
        f = min(1, other / used)

    For `still_s` of the pass the chip stands still, for copies to the host: only what its work takes longer
    than that shows. Each of the three lines gives f by itself, and the smallest is it. Work that gets shorter
    leaves less slack, never a longer pass; with everything in sight f is min(1, other / pass).
    """
    moves_s = pass_s if still_s is None else pass_s - still_s
    share = _share(moves_s, own.hidden_s, other_s)[0]
    # Slack is at most half of the pass, so that this form is the larger where it has no solution.
    np.minimum(share, other_s / np.maximum(moves_s - own.slack_s, 1e-300), out=share)
    all_s = own.fixed_s + own.hidden_s
    if still_s is not None:
        found, is_any = _share(pass_s, all_s, other_s)
        share = np.where(is_any, np.minimum(share, found), share)
    np.minimum(share, 1.0, out=share)
    hidden_s = share * own.hidden_s
    hidden_s -= own.slack_s
    longer_s = share * own.fixed_s
    longer_s += np.maximum(hidden_s, 0.0, out=hidden_s)
    used_s = pass_s - np.multiply(share, all_s, out=share)
    used_s += longer_s if still_s is None else np.maximum(longer_s - still_s, 0.0)
    return ContendedPass(longer_s=longer_s, used_s=used_s)


def _share(pass_s: Array, own_s: Array, other_s: Array) -> tuple[Array, Mask]:
    """The smaller f of f (pass - f own) = other, or where it would be next, and where there is one."""
    root = pass_s * pass_s - 4.0 * own_s * other_s
    is_any = root >= 0.0
    np.sqrt(np.maximum(root, 0.0, out=root), out=root)
    root += pass_s
    return np.divide(2.0 * other_s, np.maximum(root, 1e-300, out=root), out=root), is_any
