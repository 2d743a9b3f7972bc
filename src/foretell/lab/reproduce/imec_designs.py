"""Designs on both sides of performance and cost: topologies, chiplets, memory and process nodes."""

from collections.abc import Mapping
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

from foretell.api.network import collective
from foretell.api.serving import serve
from foretell.api.training import estimate
from foretell.catalog.files import read_table
from foretell.economics.ask import package_cost
from foretell.errors import BadInput, Infeasible
from foretell.specs.questions.cost import PackageQuestion
from foretell.studies.sweep.codesign import codesign

NODES = ("N16", "N10", "N7", "N6", "N5", "N4", "N3", "N2", "A16", "A14")
"""Process nodes, oldest first."""
TOPOLOGIES = ("switch", "fully-connected", "ring", "mesh-2d", "torus-2d", "torus-3d", "hypercube")
"""How 64 chips are joined."""
SIZES = ("64 KiB", "1 MiB", "16 MiB", "256 MiB", "1 GiB")
"""Of the collectives."""
LOGIC_MM2 = (800.0, 1600.0)
"""Silicon that a package divides, less the interfaces between dies: the first is printed as one die too."""
COST_NODES, COST_DIES = ("N7", "N5", "N3", "A14"), (1, 2, 4, 8, 16)
"""What the cost of a package is shown over."""
KINDS = ("all-reduce", "all-gather", "all-to-all")


FILE = read_table(Path(__file__).with_suffix(".toml"))
"""The machine that does not exist, and the studies of it."""


def own_system(**design: Any) -> dict[str, Any]:
    """A chip that does not exist, eight in a node, on a fat tree."""
    machine: dict[str, Any] = deepcopy(FILE["machine"])
    machine["chip"]["design"] |= design
    return machine


def study_of(name: str) -> dict[str, Any]:
    """The study of a front; the mix of training, prefill and decode where it has no work of its own."""
    found = {"workload": FILE["phases"], **deepcopy(FILE[name])}
    return found | {"base": {"system": own_system(), **found["base"]}}


def front_rows(study: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every point of a study, and whether it is on the front."""
    found = codesign(study).to_dict()
    paths = list(study["vary"])
    rows = []
    for row in found["rows"]:
        values = {path: row["values"][path] for path in paths}
        words = ", ".join(
            f"{_name(path)} {_short(value)}".strip() for path, value in values.items()
        )
        kept = {key: value for key, value in row.items() if key not in ("values", "problem")}
        ends = dict.fromkeys(ENDS)
        if row["front"]:
            ends = front_ends(study, values, row)
        rows.append({**kept, **values, **ends, "label": words})
    return rows


ENDS = ("work_low", "work_high", "usd_low", "usd_high")
"""Columns of the 90 % interval of a point on the front."""


def front_ends(
    study: Mapping[str, Any], values: Mapping[str, Any], row: Mapping[str, Any]
) -> dict[str, float | None]:
    """The 90 % interval of a point's rate and price: every phase of the mix at its slow end, and at its fast
    one, in the parts that they have of the time."""
    base = study["base"]
    chosen = {key: value for key, value in base.items() if key.startswith(("chip.", "network."))}
    sets = [f"{path}={value}" for path, value in {**chosen, **values}.items()]
    time = slow = fast = 0.0
    for phase in study["workload"]:
        fixed = {"system": base["system"], "gpus": phase.get("gpus", base.get("gpus")), "set": sets}
        named = phase.get("model") or base["model"]
        if phase.get("kind") == "serving":
            load = {key: phase[key] for key in ("isl", "osl", "concurrency")}
            served = serve(named, **fixed, **load).to_dict()
            low, high = served["intervals"]["requests_per_s"]["p90"]
            rates = [
                (load["isl"] + load["osl"]) * one for one in (low, served["requests_per_s"], high)
            ]
        else:
            job = {key: phase[key] for key in ("global_batch", "seq_len")}
            found = estimate(named, **fixed, **job)
            assert found.interval is not None
            quick, long = found.interval["p90"]
            rates = [
                job["global_batch"] * job["seq_len"] / one for one in (long, found.step_s, quick)
            ]
        part = phase["weight"] * fixed["gpus"]
        slow, time, fast = slow + part / rates[0], time + part / rates[1], fast + part / rates[2]
    work, usd = row["work_tokens_per_s_per_gpu"], row["usd_per_million_work_tokens"]
    ends = (work * time / slow, work * time / fast, usd * fast / time, usd * slow / time)
    return dict(zip(ENDS, ends, strict=True))


def _name(path: str) -> str:
    """The last part of a path in words, with its tier."""
    parts = path.split(".")
    words = parts[-1].replace("_bytes_per_s", "").replace("_mm2", "").replace("_", " ")
    return {"size": "domain", "topology": "", "bandwidth": ""}.get(words, words)


def _short(value: Any) -> str:
    if isinstance(value, float) and value >= 1e9:
        return f"{value / 1e9:g} GB/s"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def collective_rows() -> list[dict[str, Any]]:
    """Three collectives of 64 chips at 900 GB/s each, by topology and size: the best algorithm of each."""
    rows = []
    for topology in TOPOLOGIES:
        system = own_system()
        system["network"]["node"] = {
            "size": 64,
            "latency_s": "1 us",
            "bandwidth_bytes_per_s": "900 GB/s",
            "topology": topology,
        }
        for kind in KINDS:
            for size in SIZES:
                found = collective(system, collective=kind, size=size, group=64).to_dict()
                low, high = found["intervals"]["seconds"]["p90"]
                row = {"topology": topology, "collective": kind, "size": size}
                row |= {"seconds": found["seconds"], "low_s": low, "high_s": high}
                row["bus_gb_per_s"] = found["bus_bytes_per_s"] / 1e9
                rows.append(row | {"algorithm": found["algorithm"]})
    return rows


def cost_rows() -> list[dict[str, Any]]:
    """Packages in one to sixteen dies, by silicon and node; dies that no exposure prints are left out."""
    rows = []
    for area, node, dies in product(LOGIC_MM2, COST_NODES, COST_DIES):
        try:
            found = package_cost(
                PackageQuestion(node=node, area=area, dies=dies, package="interposer")
            ).to_dict()
        except Infeasible:
            continue
        row = {"logic_mm2": area, "node": node, "dies": dies}
        rows.append(row | {"die_mm2": found["dies"][0]["area_mm2"]} | _prices(found))
    return rows


def _prices(found: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Price and its range as columns."""
    return {f"{prefix}{name}": float(found[name]) for name in ("usd", "low_usd", "high_usd")}


def node_rows() -> list[dict[str, Any]]:
    """One die of 800 mm2, six stacks of HBM3 and 900 GB/s of links at every node."""
    rows = []
    for node in NODES:
        system = own_system(
            node=node,
            compute_dies=1,
            die_area_mm2=800,
            memory_type="HBM3",
            memory_stacks=6,
            scale_up_bytes_per_s="900 GB/s",
            scale_up_link="serdes-100g",
        )
        row: dict[str, Any] = {"node": node, "tokens_per_s_per_gpu": None}
        try:
            found = estimate("llama-3.1-70b", system=system, gpus=64, global_batch=64, seq_len=4096)
            chip = found.scenario.system.chip if found.scenario is not None else None
            low, high = found.to_dict()["interval"]["p90"]
            row |= {
                "tflop_per_s": 0.0 if chip is None else _matrix(chip.matrix_flop_per_s) / 1e12,
                "watts": 0.0 if chip is None else float(chip.tdp_watts),
                "tokens_per_s_per_gpu": found.tokens_per_s_per_gpu,
                "mfu": found.mfu,
                "low_tokens_per_s_per_gpu": found.tokens_per_s_per_gpu * found.step_s / high,
                "high_tokens_per_s_per_gpu": found.tokens_per_s_per_gpu * found.step_s / low,
                "plan": str(found.plan),
            }
            row |= _prices(package_cost(PackageQuestion(node=node, area=800.0)).to_dict(), "die_")
        except (BadInput, Infeasible) as error:
            row["problem"] = str(error)[:200]
        rows.append(row)
    return rows


def _matrix(rates: Mapping[str, Any]) -> float:
    return float(rates.get("bf16") or rates.get("fp16") or 0.0)
