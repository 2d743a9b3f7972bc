# ruff: noqa: E741  (l is the sequence length in the equations)
"""One plan of the 2024 reference model in plain Python, written straight from its equations.

It shares no code with the package: dictionaries, scalars and `if` where that has arrays. Besides
the published columns it notes which branches a plan took, so that a test can show that it saw all
of them.
"""

from typing import Any

W = 2  # bytes of an element
K = 1  # bytes of a mask element

QUIRKS = dict.fromkeys(
    [
        "layernorm_2d_width",
        "free_slow_p2p",
        "single_tier_all_reduce",
        "dropped_tokens",
        "constant_nvlink",
        "gathered_inputs_stored",
        "unmasked_attention",
        "scaled_vector_flops",
        "a100_bandwidth",
        "full_bias_1d",
    ],
    True,
)


class Oracle:
    """The equations for one model, chip, fast domain, strategy and set of quirks."""

    def __init__(
        self,
        model: dict[str, Any],
        chip: dict[str, float],
        strategy: str,
        nvs: int,
        gbs: int,
        quirks: dict[str, bool] | None = None,
    ) -> None:
        self.model, self.chip, self.strategy, self.nvs, self.gbs = model, chip, strategy, nvs, gbs
        self.quirks = {**QUIRKS, **(quirks or {})}
        self.branches: set[str] = set()

    # Communication -------------------------------------------------------------------------------

    def nvlink(self, t: int) -> float:
        rate = self.chip["nvlink"] * self.chip["link_eff"]
        if self.quirks["constant_nvlink"] or self.nvs == 1 or self.nvs > 4:
            return rate
        self.branches.add("wired NVLink")
        return rate * min(1.0, max(t - 1, 1) / (self.nvs - 1))

    def infiniband(self) -> float:
        return self.chip["ib"] * self.chip["link_eff"]

    def collective(self, kind: str, volume: float, g: int, t: int) -> float:
        if g == 1 or volume == 0:
            return 0.0
        lat_fast, lat_slow = self.chip["lat_fast"], self.chip["lat_slow"]
        c = 1.0 if kind in ("broadcast", "reduce") else (g - 1) / g
        double = 2.0 if kind == "allreduce" else 1.0
        single = 1.0 if self.quirks["single_tier_all_reduce"] else double
        if t == 1:
            self.branches.add(f"{kind}: slow")
            return lat_slow * (g - 1) + single * c * volume / self.infiniband()
        nodes = g // t
        if nodes == 1:
            self.branches.add(f"{kind}: fast")
            return lat_fast * (g - 1) + single * c * volume / self.nvlink(t)
        between = c * volume / (self.chip["nics"] * t * self.infiniband())
        within = c * volume / self.nvlink(t)
        self.branches.add(f"{kind}: mixed, {'NVLink' if within > between else 'IB'}")
        return double * max(between, within) + lat_slow * (nodes - 1) + lat_fast * (g - nodes)

    def p2p(self, volume: float, fast: bool) -> float:
        if fast:
            return self.chip["lat_fast"] + volume / self.nvlink(2)
        return self.chip["lat_slow"] + volume / self.infiniband()

    # Ops: (unit, forward, backward, stored, weights); a direction is (flops, bytes, comms) --------

    def layer(self, p: dict[str, int]) -> dict[str, float]:
        l, e, h = self.model["l"], self.model["e"], self.model["h"]
        b, m1, m2 = p["b"], p["m1"], p["m2"]
        f = 4 * e
        exact = not self.quirks["dropped_tokens"]
        l2 = l / m2 if exact else l // m2
        l12 = l / (m1 * m2) if exact else l // (m1 * m2)
        lx = l / m1 if exact else l // m1
        if l % m2 or l % (m1 * m2):
            self.branches.add("inexact l/m")
        rows, tokens = b * l2, b * l12
        x = lx if self.quirks["layernorm_2d_width"] else e // m1
        ops: dict[str, Any] = {}
        if self.strategy == "2d":
            ops["fc1"] = self.summa(rows, e, f, p)
            ops["fc2"] = self.summa(rows, f, e, p)
            ops["qkv"] = self.summa(rows, e, 3 * e, p)
            ops["vproj"] = self.summa(rows, e, e, p)
            ops["bias2"] = ops["bias_v"] = self.bias(rows, e // m1)
            ops["drop2"] = ops["drop_v"] = self.dropout(rows * (e // m1))
            forward = [("allreduce", 1, 2 * rows * W)]
            backward = [("allreduce", 1, (2 * (e // m1) + 2 * rows) * W)]
            ops["ln1"] = ops["ln2"] = self.norm(rows, x, forward, backward)
        else:
            ops["fc1"] = self.column(rows, e, f // m1, m1)
            ops["fc2"] = self.row(rows, f // m1, e)
            ops["qkv"] = self.column(rows, e, 3 * e // m1, m1)
            ops["vproj"] = self.row(rows, e // m1, e)
            if self.strategy == "1d":
                some = rows if self.quirks["full_bias_1d"] else tokens
                ops["bias2"] = ops["bias_v"] = self.bias(some, e)
            else:
                ops["bias2"], ops["bias_v"] = self.bias(tokens, e), self.bias(rows, e // m1)
            ops["drop2"] = ops["drop_v"] = self.dropout(tokens * e)
            forward = [("allgather", 1, rows * e * W)]
            backward = [("reducescatter", 1, rows * e * W)]
            ops["ln1"] = ops["ln2"] = self.norm(tokens, e, forward, backward)
        ops["bias1"] = self.bias(rows, f // m1)
        ops["gelu"] = self.gelu(rows * (f // m1))
        ops["drop1"] = self.dropout(rows * (f // m1))
        ops["flash"] = self.flash(b, h // m1, l2, l, e // h)
        assert len(ops) == 14
        return self.layer_sums(ops, p)

    def bias(self, r: float, width: float) -> Any:
        both = (r * width, (r * width + width) * W, [])
        return "vector", both, both, 0, width * W

    def gelu(self, n: float) -> Any:
        return "vector", (8 * n, 2 * n * W, []), (13 * n, 3 * n * W, []), n * W, 0

    def dropout(self, n: float) -> Any:
        both = (n, 2 * n * W + n * K, [])
        return "vector", both, both, n * K, 0

    def norm(self, r: float, x: float, forward: Any, backward: Any) -> Any:
        n = r * x
        f = (9 * n, (2 * n + 2 * r + 2 * x) * W, forward)
        b = (8 * n + 4 * r * (x - 1), (5 * n + 2 * x) * W, backward)
        return "vector", f, b, n * W, 2 * x * W

    def linear(self, r: float, ei: float, fo: float) -> Any:
        moved = (r * ei + r * fo + ei * fo) * W
        flops_b = r * ei * (2 * fo - 1) + ei * fo * (2 * r - 1)
        return (r * fo * (2 * ei - 1), moved), (flops_b, 2 * moved)

    def column(self, r: float, e: float, fo: float, m1: int) -> Any:
        f, b = self.linear(r, e, fo)
        comms, stored = [("reducescatter", 1, r * e * W)], r * e * W
        if not self.quirks["gathered_inputs_stored"]:
            comms, stored = [*comms, ("allgather", 1, r * e * W)], r * e * W / m1
        return "matrix", (*f, []), (*b, comms), stored, e * fo * W

    def row(self, r: float, ei: float, e: float) -> Any:
        f, b = self.linear(r, ei, e)
        comms = [("reducescatter", 1, r * e * W)]
        return "matrix", (*f, comms), (*b, []), r * ei * W, ei * e * W

    def summa(self, r: float, ei: int, fo: int, p: dict[str, int]) -> Any:
        m1, m2, nb = p["m1"], p["m2"], p["nb"]
        fo1 = fo // m1
        a, b, c = r * ei * W, ei * fo1 * W, r * fo1 * W
        moved = a + b + nb * c
        forward = [("broadcast", 1, a), ("broadcast", 2, b)]
        backward = [("broadcast", 2, b), ("reduce", 1, a), ("broadcast", 1, a), ("reduce", 2, b)]
        flops_b = r * ei * (2 * fo1 - 1) + ei * fo1 * (2 * r - 1)
        f = (2 * r * fo1 * ei, moved, forward)
        return (
            "summa",
            f,
            (flops_b, 2 * moved, backward),
            r * (ei // m1) * W,
            (ei // m2) * fo1 * W,
        )

    def flash(self, b: int, heads: int, lq: float, l: int, q: int) -> Any:
        rho = self.chip["matrix"] / self.chip["vector"]
        lk, qa = float(l), float(lq)
        if self.model["causal"] and not self.quirks["unmasked_attention"]:
            lk = (l + 1) / 2
            qa = lq * lk / l
        r = b * heads * lq
        s, qs, kv = r * lk, r * q, b * heads * l * q
        qk, pv = s * (2 * q - 1), qs * (2 * lk - 1)
        vec = 2 * s + r * (lk - 1) + s
        vec_b = 3 * s + r * (lk - 1) + s
        flops_b = qs * (2 * lk - 1) + kv * (2 * qa - 1) + s * (2 * q - 1) + kv * (2 * qa - 1)
        flops_b += rho * vec_b + qk + rho * vec
        stored = (4 * qs + 2 * r) * W
        self.extra_flops = (rho - 1) * (vec + vec_b + vec)
        gather, scatter = ("allgather", 2, 2 * kv * W), ("reducescatter", 2, 2 * kv * W)
        f = (qk + pv + rho * vec, (2 * qs + 2 * kv + r) * W, [gather])
        return "matrix", f, (flops_b, (2 * kv + 2 * qs) * W + stored, [gather, scatter]), stored, 0

    def layer_sums(self, ops: dict[str, Any], p: dict[str, int]) -> dict[str, float]:
        sums = dict.fromkeys(["tf", "tb", "comp", "mem", "comm", "flops", "acts", "wts"], 0.0)
        for name, (unit, forward, backward, stored, weights) in ops.items():
            sums["acts"] += stored
            sums["wts"] += weights
            for direction, (flops, moved, comms) in (("tf", forward), ("tb", backward)):
                peak = self.chip["vector" if unit == "vector" else "matrix"]
                comp = self.chip["launch"] + flops / (self.chip["eff"] * peak)
                mem = moved / self.chip["hbm_bw"]
                if mem > comp and unit != "vector" and name != "flash":
                    self.branches.add("memory-bound linear")
                comm = self.exposed(unit, comms, max(comp, mem), p)
                sums[direction] += max(comp, mem) + comm
                sums["comp"] += comp
                sums["mem"] += max(mem - comp, 0.0)
                sums["comm"] += comm
                sums["flops"] += flops
        if not self.quirks["scaled_vector_flops"]:
            sums["flops"] -= self.extra_flops
        sums["ln1"] = ops["ln1"][3]
        return sums

    def exposed(self, unit: str, comms: Any, op: float, p: dict[str, int]) -> float:
        cut = p["nb"] if unit == "summa" else 1
        s = 0.0
        for kind, axis, volume in comms:
            g, t = (p["m1"], p["t1"]) if axis == 1 else (p["m2"], p["t2"])
            s += self.collective(kind, volume / cut, g, t)
        if unit != "summa":
            return s
        if s > 0:
            self.branches.add("SUMMA hidden" if cut * s <= op else "SUMMA exposed")
        return s + max(cut * s - op, 0.0)

    # The iteration -------------------------------------------------------------------------------

    def plan(self, p: dict[str, int]) -> dict[str, float]:
        """Published columns of one plan, in published units."""
        layer = self.layer(p)
        dp, pp, b, m2 = p["dp"], p["pp"], p["b"], p["m2"]
        nl, mu = self.model["L"] // pp, self.gbs // (dp * b)
        seqp = self.strategy == "2d-seqp"
        group, inside = (dp * m2, p["nv_dp"] * p["t2"]) if seqp else (dp, p["nv_dp"])
        x = self.collective("allgather", layer["wts"], group, inside)
        t_dp = x + (nl - 1) * max(x - layer["tf"], 0) + x + (nl - 1) * max(x - layer["tb"], 0)
        if x > min(layer["tf"], layer["tb"]):
            self.branches.add("DP exposed")
        t_pp = 2 * mu * self.hop(layer["ln1"], pp, p["nv_pp"])
        t0 = (layer["tf"] + layer["tb"]) * mu * nl + t_pp
        bubble = (pp - 1) * t0 / mu
        t = t0 + bubble + t_dp
        wts = layer["wts"] * nl
        opt = 6 * wts / (dp * m2 if seqp else dp)
        acts = layer["acts"] * nl * min(pp, mu)
        if mu < pp:
            self.branches.add("mu < pp")
        if p["m1"] * m2 * pp * dp <= self.nvs:
            self.branches.add("n <= nvs")
        out = {
            "throughput": self.gbs / t,
            "mem": (wts + wts + opt + acts) / 1e9,
            "t": t,
            "flops_per_gpu": mu * nl * layer["flops"] / 1e12,
            "t_comp": mu * nl * layer["comp"],
            "t_mem": mu * nl * layer["mem"],
            "t_tp_comm": mu * nl * layer["comm"],
            "t_dp_comm": t_dp,
            "t_pp_comm": t_pp,
            "t_bubble": bubble,
            "wts_mem": wts / 1e9,
            "wts_grad_mem": wts / 1e9,
            "wts_optimizer_states_mem": opt / 1e9,
            "acts_mem": acts / 1e9,
        }
        for part in ("comp", "tp_comm", "dp_comm", "pp_comm", "bubble", "mem"):
            out[f"{part}_frac"] = out[f"t_{part}"] / t
        return out

    def hop(self, volume: float, pp: int, s: int) -> float:
        if pp == 1 or volume == 0:
            return 0.0
        if s == 1:
            self.branches.add("p2p: slow")
            return self.p2p(volume, fast=False)
        slow = int(pp / s - 1)
        fast = pp - 1 - slow
        self.branches.add("p2p: fast and slow" if slow else "p2p: fast")
        y = fast / (pp - 1) * self.p2p(volume, fast=True)
        if not self.quirks["free_slow_p2p"]:
            y += slow / (pp - 1) * self.p2p(volume, fast=False)
        return y


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def candidates(model: dict[str, Any], strategy: str, n: int, nvs: int, gbs: int) -> list[Any]:
    """The published candidates by nested loops."""
    l, e, h, layers = model["l"], model["e"], model["h"], model["L"]
    found = []
    for m1 in divisors(n):
        if h % m1 or e % m1:
            continue
        if (3 * e // m1 if strategy == "1d" else e // m1) < 128:
            continue
        for m2 in [1] if strategy == "1d" else divisors(n // m1):
            if strategy != "1d" and l // m2 < 128:
                continue
            if strategy == "2d" and e % m2:
                continue
            tp = m1 * m2
            for pp in divisors(min(n // tp, layers)):
                if n % (tp * pp) or layers % pp:
                    continue
                dp = n // (tp * pp)
                if gbs % dp:
                    continue
                share = {"1d": m1, "2d": m2, "2d-seqp": tp}[strategy]
                batches = [b for b in divisors(gbs // dp) if b * l % share == 0]
                places = placements(strategy, (m1, m2, dp, pp), n, nvs)
                for b in batches:
                    for t1, t2, nv_dp, nv_pp in places:
                        for nb in panels(e, max(m1, m2)) if strategy == "2d" else [1]:
                            degrees = {"m1": m1, "m2": m2, "pp": pp, "dp": dp, "b": b, "nb": nb}
                            inside = {"t1": t1, "t2": t2, "nv_dp": nv_dp, "nv_pp": nv_pp}
                            found.append(degrees | inside)
    return found


def placements(strategy: str, groups: tuple[int, ...], n: int, nvs: int) -> list[tuple[int, ...]]:
    if n <= nvs:
        return [groups]
    m1, m2, dp, pp = groups
    return [
        (n1, n2, n3, n4)
        for n1 in divisors(m1)
        for n2 in ([1] if strategy == "1d" else divisors(m2))
        for n3 in divisors(dp)
        for n4 in divisors(pp)
        if n1 * n2 * n3 * n4 == nvs
    ]


def panels(e: int, start: int) -> list[int]:
    if e / start < 512:
        return [start]
    doublings, nb = [], start
    while nb < e:
        doublings.append(nb)
        nb *= 2
    return [nb for nb in doublings if e % nb == 0 and e / nb >= 512]
