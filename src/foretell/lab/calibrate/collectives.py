"""Fit the collective library's coefficients to measured tables.

A link generation's coefficients come from the single-node rows of its chips, a fabric's from the rows that
leave a node, all transports of the fabric at once: what is the library's (chunk sizes, steps inside a node)
is one number for all of them. The loss is robust (soft-L1, then Cauchy) on the logarithm of
predicted / measured, with a weak prior that holds each coefficient near its start, so that
what the data does not tell stays physical.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell.lab.calibrate.collectives_rows import CollectiveRow
from foretell.lab.calibrate.collectives_sites import (
    Coefficients,
    SiteRows,
    batches,
    catalogue_coefficients,
    predict,
    site_of,
)
from foretell.lab.calibrate.collectives_start import (
    BETWEEN_FREE,
    CUSTOM_FREE,
    CUSTOM_START,
    FABRICS,
    FAMILIES,
    IN_NETWORK_HELD,
    INSIDE_FREE,
    INSIDE_START,
    TRANSPORT_START,
    FreeCoefficient,
)
from foretell.network.library_records import Custom, InsideNode
from foretell.specs.arrays import Array

PRINTED = Path(__file__).parent / "published_collectives.csv"
"""Collectives over nodes from logs in print, by hand; the source is in each row."""
SMALL_BYTES, LARGE_BYTES = 65536.0, 16.0 * 2**20
SPREAD, PRIOR = 0.12, 1.0
"""Residual, in logarithms, that counts as one; and how far a coefficient may lightly leave its start."""
SMALL_WEIGHT = 0.3
"""Weight of messages below 64 KiB: they are mostly launch noise."""


def fit(rows: Sequence[CollectiveRow]) -> Coefficients:
    """Coefficients of every link and fabric that the rows are of; of others the start or the catalogue's."""
    told = [
        (i, row, site) for i, row in enumerate(rows) if not isinstance(site := site_of(row), str)
    ]
    full = [part for part in batches(told) if np.any(part.size_bytes > 0.0)]
    parts = [_sent(part) for part in full]
    start = catalogue_coefficients()
    now = replace(
        start,
        inside={**start.inside, **INSIDE_START},
        custom={**start.custom, **CUSTOM_START},
        between={**start.between, **TRANSPORT_START},
        hop_factor={
            **start.hop_factor,
            **{name: {} for name, one in FABRICS.items() if one.versions},
        },
    )
    near = [part for part in parts if not part.spans and not part.site.custom]
    for link in sorted({part.site.link for part in near} & INSIDE_START.keys()):
        mine = [part for part in near if part.site.link == link]
        now = _solve(now, _inside_free(now, link), mine)
    now = _kin(now, {part.site.link for part in near})
    own = [part for part in parts if part.site.custom]
    for link in sorted({part.site.link for part in own} & CUSTOM_START.keys()):
        mine = [part for part in own if part.site.link == link]
        now = _solve(now, [(f"custom:{link}", free) for free in CUSTOM_FREE], mine)
    now = _kin_custom(now, {part.site.link for part in own})
    # Where the links of a node were never measured, what is theirs would pass for the fabric's.
    far = [part for part in parts if part.spans and part.site.link in INSIDE_START]
    measured = {part.site.fabric for part in far} & FABRICS.keys()
    for fabric in sorted(measured, key=lambda name: (FABRICS[name].scale_from != "", name)):
        mine = [part for part in far if part.site.fabric == fabric]
        now = _solve(_at_scale(_from_kin(now, fabric), fabric), _fabric_free(fabric, mine), mine)
    return _empty(now, batches(told))


def _kin(now: Coefficients, fitted: set[str]) -> Coefficients:
    """An NVLink generation without rows is the geometric mean of those with rows."""
    known = [now.inside[link] for link in sorted(fitted) if link.startswith("nvlink")]
    if not known:
        return now
    inside = dict(now.inside)
    for link in INSIDE_START.keys() - fitted:
        if link.startswith("nvlink"):
            means: dict[str, Any] = {item.field: _mean(item.field, known) for item in INSIDE_FREE}
            if not np.isfinite(INSIDE_START[link].in_network_base_s):
                means["in_network_base_s"] = np.inf
            inside[link] = replace(INSIDE_START[link], **means)
    return replace(now, inside=inside)


def _kin_custom(now: Coefficients, fitted: set[str]) -> Coefficients:
    """The same for a serving engine's own kernels."""
    known = [now.custom[link] for link in sorted(fitted & CUSTOM_START.keys())]
    custom = dict(now.custom)
    for link in CUSTOM_START.keys() - fitted:
        if known:
            means: dict[str, Any] = {item.field: _mean(item.field, known) for item in CUSTOM_FREE}
            custom[link] = replace(CUSTOM_START[link], **means)
    return replace(now, custom=custom)


def _from_kin(now: Coefficients, fabric: str) -> Coefficients:
    """A fabric that has a kin starts where that one's fit ended, with its own share of large messages."""
    kin = FABRICS[fabric].kin or fabric
    begun = {
        name: replace(
            now.between[f"{kin}/{name.split('/')[1]}"], id=name, efficiency=own.efficiency
        )
        for name, own in now.between.items()
        if name.startswith(f"{fabric}/")
    }
    return replace(now, between={**now.between, **begun})


def _at_scale(now: Coefficients, fabric: str) -> Coefficients:
    """A fabric measured on few nodes, with what is the library's from one measured on a hundred."""
    measured = FABRICS[fabric].scale_from
    if not measured:
        return now
    known = now.between[measured]
    between = {
        name: replace(
            own,
            overlap=(*own.overlap[:2], known.overlap[2]),
            inner_step_s=(*own.inner_step_s[:2], known.inner_step_s[2]),
            chunk_bytes=(*own.chunk_bytes[:2], known.chunk_bytes[2]),
        )
        for name, own in now.between.items()
        if name.startswith(f"{fabric}/")
    }
    return replace(now, between={**now.between, **between})


def _mean(field: str, links: Sequence[InsideNode | Custom]) -> float | tuple[float, ...]:
    """Geometric mean of a field over links, leaving out what they do not have."""
    values = np.array([np.atleast_1d(getattr(link, field)) for link in links], float)
    logs = np.where(np.isfinite(values), np.log(values), np.nan)
    some = np.isfinite(logs).any(axis=0)
    means = np.exp(np.nanmean(np.where(some, logs, 0.0), axis=0))
    found = tuple(float(v) for v in np.where(some, means, np.inf))
    return found if isinstance(getattr(links[0], field), tuple) else found[0]


def _sent(part: SiteRows) -> SiteRows:
    """The rows that send something."""
    keep = part.size_bytes > 0.0
    return replace(
        part,
        index=part.index[keep],
        counts=part.counts[:, keep],
        size_bytes=part.size_bytes[keep],
        measured_s=part.measured_s[keep],
    )


def _inside_free(now: Coefficients, link: str) -> list[tuple[str, FreeCoefficient]]:
    """Free coefficients of a link: those of in-network reduction only where it has one."""
    held: set[str] = set()
    if link in IN_NETWORK_HELD or not np.isfinite(now.inside[link].in_network_base_s):
        held |= {"in_network_base", "in_network_share"}
    return [(f"inside:{link}", item) for item in INSIDE_FREE if item.name not in held]


def _fabric_free(fabric: str, parts: Sequence[SiteRows]) -> list[tuple[str, FreeCoefficient]]:
    """Free coefficients of a fabric: shared by all its transports, by a family of them, or one's own."""
    names = sorted({part.site.transport for part in parts})
    rules = FABRICS[fabric]
    free: list[tuple[str, FreeCoefficient]] = []
    for item in BETWEEN_FREE:
        if item.name in rules.held:
            continue
        if item.name in rules.all:
            free.append((f"between:{fabric}/*", item))
        elif item.name in rules.family:
            kinds = sorted({FAMILIES[name] for name in names})
            free += [(f"between:{fabric}/@{kind}", item) for kind in kinds]
        else:
            free += [(f"between:{fabric}/{name}", item) for name in names]
    seen = {".".join(part.site.version.split(".")[:2]) for part in parts}
    return free + [
        (
            f"version:{fabric}/{version}",
            FreeCoefficient(name="hop_factor", field="hop_factor", start=1.0),
        )
        for version in sorted(seen & set(rules.versions))
    ]


def _solve(
    start: Coefficients, free: Sequence[tuple[str, FreeCoefficient]], parts: Sequence[SiteRows]
) -> Coefficients:
    """The coefficients with those that are free moved to where the rows are met best."""
    from scipy.optimize import least_squares

    starts = [_value(start, target, item) for target, item in free]

    def at(z: Array) -> Coefficients:
        now = start
        for (target, item), value, move in zip(free, starts, z, strict=True):
            now = _with(now, target, item, value * float(np.exp(move)))
        return now

    def residuals(some: Sequence[SiteRows], now: Coefficients) -> Array:
        return np.concatenate([_residuals(part, now) for part in some])

    def function(z: Array) -> Array:
        return np.concatenate([residuals(parts, at(z)), z / PRIOR])

    def jacobian(z: Array) -> Array:
        """Differences, each over the batches that its coefficient touches."""
        ends = np.cumsum([0, *(len(part.index) for part in parts)])
        matrix = np.zeros((ends[-1] + len(z), len(z)))
        matrix[ends[-1] :, :] = np.eye(len(z)) / PRIOR
        base = [_residuals(part, at(z)) for part in parts]
        for j, (target, _) in enumerate(free):
            moved = z.copy()
            moved[j] += 1e-5
            now = at(moved)
            for i, part in enumerate(parts):
                if _touches(target, part):
                    change = (_residuals(part, now) - base[i]) / 1e-5
                    matrix[ends[i] : ends[i + 1], j] = change
        return matrix

    high = np.array(
        [np.log(item.most / value) for (_, item), value in zip(free, starts, strict=True)]
    )
    z = np.minimum(0.0, high - 1e-6)
    # First a loss that forgives far rows, then one that forgets them: some tables have two modes.
    for loss in ("soft_l1", "cauchy"):
        solved = least_squares(
            function,
            z,
            jac=jacobian,
            bounds=(-6.0, np.maximum(high, 1e-6)),
            loss=loss,
            max_nfev=60,
        )
        z = solved.x
    return at(z)


def _residuals(part: SiteRows, now: Coefficients) -> Array:
    found: Array = _weights(part) * np.log(predict(part, now) / part.measured_s) / SPREAD
    return found


def _weights(part: SiteRows) -> Array:
    """Rows of one group and octave of sizes count as at most two, however densely a table samples."""
    octave = np.floor(np.log2(part.size_bytes))
    keys = np.column_stack([part.counts.T, octave])
    _, place, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    small = np.where(part.size_bytes < SMALL_BYTES, SMALL_WEIGHT, 1.0)
    weight: Array = small * np.sqrt(np.minimum(1.0, 2.0 / count[place.ravel()]))
    return weight


def _targets(target: str, names: Sequence[str]) -> list[str]:
    """The `fabric/transport` keys that a target such as `slingshot-11/@sockets` means."""
    fabric, _, transport = target.partition("/")
    mine = [name for name in names if name.startswith(f"{fabric}/")]
    if transport == "*":
        return mine
    if transport.startswith("@"):
        return [name for name in mine if FAMILIES.get(name.split("/")[1]) == transport[1:]]
    return [target]


def _touches(target: str, part: SiteRows) -> bool:
    kind, _, name = target.partition(":")
    if kind == "between":
        key = f"{part.site.fabric}/{part.site.transport}"
        return key in _targets(name, [key])
    if kind == "version":
        return part.kind == "all-reduce" and part.site.version.startswith(name.split("/")[1])
    return True


def _value(now: Coefficients, target: str, item: FreeCoefficient) -> float:
    """A free coefficient's start."""
    kind, _, name = target.partition(":")
    if kind == "version":
        return item.start
    records: Mapping[str, object] = getattr(now, kind)
    key = name if kind != "between" else _targets(name, list(now.between))[0]
    held = getattr(records[key], item.field)
    return float(held if item.place is None else held[item.place])


def _with(now: Coefficients, target: str, item: FreeCoefficient, value: float) -> Coefficients:
    """The coefficients with one of them changed, in every record that shares it."""
    kind, _, name = target.partition(":")
    if kind == "version":
        fabric, _, version = name.partition("/")
        factors = {**now.hop_factor, fabric: {**now.hop_factor[fabric], version: value}}
        return replace(now, hop_factor=factors)
    records = dict(getattr(now, kind))
    for key in [name] if kind != "between" else _targets(name, list(records)):
        held: Any = value
        if item.shares:
            held = tuple(share * value for share in item.shares)
        elif item.place is not None:
            before = getattr(records[key], item.field)
            held = (*before[: item.place], value, *before[item.place + 1 :])
        records[key] = replace(records[key], **{item.field: held})
    return replace(now, **{kind: records})


def _empty(now: Coefficients, parts: Sequence[SiteRows]) -> Coefficients:
    """Time per peer of an exchange of nothing: the median over the rows that send nothing."""
    found: dict[str, list[float]] = {}
    for part in parts:
        if part.kind == "all-to-all" and part.spans:
            base = now.inside[part.site.link].base_s[0]
            peers = np.prod(part.counts, axis=0) - 1.0
            none = part.size_bytes == 0.0
            each = (part.measured_s[none] - base) / peers[none]
            found.setdefault(f"{part.site.fabric}/{part.site.transport}", []).extend(each)
    moved = {
        key: replace(now.between[key], empty_peer_s=float(np.median(values)))
        for key, values in found.items()
        if values
    }
    return replace(now, between={**now.between, **moved})
