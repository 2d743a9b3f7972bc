"""A whole service as one script: every instance on its GPUs and port, both halves of a split one, the router.

Instances are laid on nodes one after the other, and none across two nodes where it fits on one. The script
runs on every node with its NODE_RANK (Slurm, SkyPilot and Kubernetes set one); node 0 also runs the router.
HOSTS are the nodes' names. Halves exchange their caches by NIXL. An instance of several nodes has a process
on each (vLLM: --nnodes, --headless; SGLang: --nnodes, --dist-init-addr); MPI starts TensorRT-LLM's.

    vLLM           --kv-transfer-config with kv_producer and kv_consumer; vllm-router --vllm-pd-disaggregation
    SGLang         --disaggregation-mode prefill and decode; sglang_router --pd-disaggregation
    TensorRT-LLM   servers whose file has cache_transceiver_config; trtllm-serve disaggregated
"""

from collections.abc import Sequence
from typing import Literal

from foretell.interop.launch import Tool
from foretell.interop.launchers import SERVICES, fill_text, started, text_of
from foretell.records import dataclass

FIRST_PORT, ROUTER_PORT, SIDE_PORT, JOIN_PORT = 8100, 8000, 5600, 29500
"""Ports of the first instance of a node, of the router, of the first NIXL side channel, and where nodes of
the first instance join."""
SIDE_PORTS = 64
"""Ports of an instance's side channels: one for each of its ranks."""
Role = Literal["both", "prefill", "decode"]
CONNECTOR = {
    "prefill": '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}',
    "decode": '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}',
}
"""vLLM's word for each half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePool:
    """Instances of one kind."""

    role: Role
    """What they do: both phases, prompts alone, or answers alone."""
    count: int
    """How many."""
    command: str
    """The command of one, and before it what it writes."""
    gpus: int
    """GPUs of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlace:
    """One instance where it runs."""

    pool: InstancePool
    """Its kind."""
    node: int
    """Its node, or the first of several."""
    gpus: tuple[int, ...]
    """Its GPUs on that node."""
    port: int
    """Its port there."""
    index: int
    """Its place among all instances."""


def places_of(pools: Sequence[InstancePool], node_gpus: int) -> list[InstancePlace]:
    """Every instance with its node, GPUs and port."""
    found: list[InstancePlace] = []
    node, used, on_node = 0, 0, 0
    for pool in pools:
        for _ in range(pool.count):
            here = min(pool.gpus, node_gpus)
            if used + here > node_gpus:
                node, used, on_node = node + 1, 0, 0
            found.append(
                InstancePlace(
                    pool=pool,
                    node=node,
                    gpus=tuple(range(used, used + here)),
                    port=FIRST_PORT + on_node,
                    index=len(found),
                )
            )
            used, on_node = used + here, on_node + 1
            if pool.gpus > node_gpus:
                node, used, on_node = node - (-pool.gpus // node_gpus), 0, 0
    return found


def nodes_of(pools: Sequence[InstancePool], node_gpus: int) -> int:
    """Nodes that a service takes."""
    all_of_them = places_of(pools, node_gpus)
    return max(one.node - (-one.pool.gpus // node_gpus) for one in all_of_them)


def fleet_script(
    tool: Tool, pools: Sequence[InstancePool], node_gpus: int, port: int | None = None
) -> tuple[str, list[str]]:
    """(script, notes) of a whole service; a single instance is its command alone.

    `port` is where clients expect it: the router's, unless an instance is there.
    """
    if len(pools) == 1 and pools[0].count == 1 and pools[0].gpus <= node_gpus:
        return pools[0].command, []
    every = places_of(pools, node_gpus)
    front = port if port and port not in {one.port for one in every} else ROUTER_PORT
    nodes = nodes_of(pools, node_gpus)
    lines = [
        "#!/bin/bash",
        f"# {len(every)} instances on {nodes} nodes; run it on each, with its NODE_RANK.",
        "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-${SKYPILOT_NODE_RANK:-0}}}",
        f"HOSTS=(${{HOSTS:-{' '.join(f'node{i}' for i in range(nodes)) if nodes > 1 else 'localhost'}}})",
    ]
    # Files come before everything else: what ends them must stand at the beginning of its line.
    for pool in pools:
        lines += _files(tool, pool)
    *file, router = _router(tool, every, front).split("\n")
    lines += file
    for node in range(nodes):
        mine = [one for one in every if one.node <= node < one.node + _span(one, node_gpus)]
        commands = [_instance(tool, one, node, node_gpus, several=nodes > 1) for one in mine]
        lines.append(f'if [ "$NODE_RANK" = {node} ]; then')
        lines += [f"  {text}" for text in commands if text]
        lines += [f"  {router}"] if node == 0 else []
        lines += ["  :"] if node and not any(commands) else []
        lines.append("fi")
    return "\n".join([*lines, "wait"]), []


def _files(tool: Tool, pool: InstancePool) -> list[str]:
    """Lines that write the file of options of a pool, under a name of its own; none where it has none."""
    before = _parts(tool, pool)[0]
    return [line.replace("> extra.yml", f"> {_file_name(pool)}") for line in before]


def _parts(tool: Tool, pool: InstancePool) -> tuple[list[str], str]:
    """(what writes the file of options, the command)."""
    *before, command = pool.command.split("\n")
    if pool.role != "both" and tool == "trtllm":
        before, command = _with_transceiver(before, command)
    return before, command.replace("--config extra.yml", f"--config {_file_name(pool)}")


def _file_name(pool: InstancePool) -> str:
    return "extra.yml" if pool.role == "both" else f"{pool.role}.yml"


def _span(one: InstancePlace, node_gpus: int) -> int:
    """Nodes of an instance."""
    return -(-one.pool.gpus // node_gpus)


def _joined(tool: Tool, one: InstancePlace, rank: int, span: int) -> list[str]:
    """Flags of one of several nodes of an instance."""
    first, port = f"${{HOSTS[{one.node}]}}", JOIN_PORT + one.index
    if tool == "vllm":
        where = f"--nnodes {span} --node-rank {rank} --master-addr {first} --master-port {port}"
        return [where, *(["--headless"] if rank else [])]
    return [f"--nnodes {span} --node-rank {rank} --dist-init-addr {first}:{port}"]


def _instance(tool: Tool, one: InstancePlace, node: int, node_gpus: int, *, several: bool) -> str:
    """The command of one instance on one of its nodes, in the background; empty where nothing runs there.

    On several nodes it listens to the others.
    """
    command = _parts(tool, one.pool)[1]
    span, rank = _span(one, node_gpus), node - one.node
    words = [f"CUDA_VISIBLE_DEVICES={','.join(map(str, one.gpus))}"]
    more = [f"--port {one.port}"]
    role = one.pool.role
    if span > 1 and tool == "trtllm":
        if rank:
            return ""
        hosts = ",".join(f"${{HOSTS[{one.node + i}]}}:{node_gpus}" for i in range(span))
        words = [f"mpirun -n {one.pool.gpus} -H {hosts} trtllm-llmapi-launch"]
        more.append(f"--gpus_per_node {node_gpus}")
    elif span > 1:
        more += _joined(tool, one, rank, span)
    if several and tool != "vllm" and "--host" not in command:  # vLLM listens to all by itself
        more.insert(0, "--host 0.0.0.0")
    if role != "both" and tool == "vllm":
        words += ["VLLM_NIXL_SIDE_CHANNEL_HOST=${HOSTS[$NODE_RANK]}"] if several else []
        words.append(f"VLLM_NIXL_SIDE_CHANNEL_PORT={SIDE_PORT + SIDE_PORTS * one.index}")
        more.append(f"--kv-transfer-config '{CONNECTOR[role]}'")
    if role != "both" and tool == "sglang":
        more.append(f"--disaggregation-mode {role} --disaggregation-transfer-backend nixl")
        if role == "prefill":
            more.append(f"--disaggregation-bootstrap-port {SIDE_PORT + one.index}")
    return " ".join([*words, command, *more, "&"])


def _with_transceiver(before: list[str], command: str) -> tuple[list[str], str]:
    """TensorRT-LLM's file of options with the exchange of caches in it."""
    lines = ["cache_transceiver_config:", "  backend: DEFAULT"]
    if before:
        end = max(at for at, line in enumerate(before) if line.strip() == "EOF")
        return [*before[:end], *lines, *before[end:]], command
    return ["cat > extra.yml <<'EOF'", *lines, "EOF"], f"{command} --config extra.yml"


def _router(tool: Tool, every: Sequence[InstancePlace], port: int) -> str:
    """What is in front of the instances."""

    def url(one: InstancePlace) -> str:
        return f"http://${{HOSTS[{one.node}]}}:{one.port}"

    front = [one for one in every if one.pool.role == "prefill"]
    back = [one for one in every if one.pool.role == "decode"]
    if not front:
        urls = " ".join(f'"{url(one)}"' for one in every)
        if tool == "sglang":
            return f"python -m sglang_router.launch_router --worker-urls {urls} --port {port} &"
        return f"vllm-router --worker-urls {urls} --policy round_robin --port {port} &"
    if tool == "trtllm":
        return _trtllm_router(front, back, port)
    halves = " ".join(
        [*(f'--prefill "{url(one)}"' for one in front), *(f'--decode "{url(one)}"' for one in back)]
    )
    if tool == "sglang":
        halves = " ".join(
            [
                *(f'--prefill "{url(one)}" {SIDE_PORT + one.index}' for one in front),
                *(f'--decode "{url(one)}"' for one in back),
            ]
        )
        return f"python -m sglang_router.launch_router --pd-disaggregation {halves} --port {port} &"
    return f"vllm-router --vllm-pd-disaggregation --policy round_robin {halves} --port {port} &"


def _trtllm_router(front: Sequence[InstancePlace], back: Sequence[InstancePlace], port: int) -> str:
    """TensorRT-LLM's own router and the file that names both halves."""
    urls = (
        "\n".join(f'- "${{HOSTS[{one.node}]}}:{one.port}"' for one in some)
        for some in (front, back)
    )
    counts = {"front_count": len(front), "back_count": len(back)}
    return text_of("trtllm_router", port=port, front=next(urls), back=next(urls), **counts)


def service_file(script: str, how: str, *, name: str, nodes: int, node_gpus: int, chip: str) -> str:
    """The script as a batch script, a SkyPilot task or a Kubernetes object."""
    if how not in SERVICES:
        return script
    body = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
    inner = fill_text(SERVICES[how], script=body.partition("\n")[2])
    text = "service" if how == "kubernetes" else how
    return started(how, inner, name=name, nodes=nodes, each=node_gpus, chip=chip, container="server",
                   text=text)  # fmt: skip
