"""How a training command is started on many nodes: torchrun, Slurm, Kubernetes, SkyPilot.

A wrapping takes the program with its flags, and says nodes, GPUs of a node, environment and where they meet.
Each is read back (forms/) to the same nodes and flags.
"""

from collections.abc import Callable, Mapping

from foretell.errors import BadInput, unknown
from foretell.records import dataclass

PORT = 29500
"""Where the ranks meet."""
ACCELERATORS: Mapping[str, str] = {
    "h100-sxm": "H100", "h200-sxm": "H200", "a100-sxm-80gb": "A100-80GB", "a100-sxm-40gb": "A100",
    "b200-sxm": "B200", "b300-sxm": "B300", "gb200": "GB200", "gb300": "GB300", "mi300x": "MI300X",
    "l40s": "L40S", "l4": "L4", "a10": "A10", "v100-sxm-16gb": "V100", "v100-sxm-32gb": "V100-32GB",
}  # fmt: skip
"""Chips as SkyPilot spells them; another goes by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """A program to be started."""

    name: str
    """What the job is called."""
    program: str
    """The program and its flags, without what starts it."""
    nodes: int
    """Nodes."""
    each: int
    """GPUs of a node."""
    chip: str
    """The chip's id."""
    environment: Mapping[str, str]
    """Variables that it needs."""
    files: Mapping[str, str]
    """Files that it reads, by name."""
    launcher: str = "torchrun"
    """The program that starts a process for each GPU of a node: torchrun, or deepspeed."""


def wrapped(job: LaunchJob, how: str) -> str:
    """The job as a text for one of the launchers."""
    if how not in LAUNCHERS:
        raise BadInput([unknown("launcher", how, LAUNCHERS)])
    return LAUNCHERS[how](job)


def _start(job: LaunchJob, rank: str, address: str) -> str:
    """The command of one node."""
    several = ""
    if job.nodes > 1:
        several = f" --node_rank {rank} --master_addr {address} --master_port {PORT}"
    return f"torchrun --nnodes {job.nodes} --nproc_per_node {job.each}{several} {job.program}"


def _files(job: LaunchJob) -> list[str]:
    """Commands that write the files."""
    return [f"cat > {name} <<'EOF'\n{content}\nEOF" for name, content in job.files.items()]


def _exports(job: LaunchJob) -> list[str]:
    return [f"export {name}={value}" for name, value in job.environment.items()]


def torchrun(job: LaunchJob) -> str:
    """The command itself; on several nodes it is run on each, with its NODE_RANK."""
    before = " ".join(f"{name}={value}" for name, value in job.environment.items())
    command = _start(job, "${NODE_RANK:-0}", "${MASTER_ADDR:-localhost}")
    return "\n".join([*_files(job), f"{before} {command}".strip()])


def slurm(job: LaunchJob) -> str:
    """A batch script: a task for each node, which starts a process for each of its GPUs."""
    head = [
        "#!/bin/bash",
        f"#SBATCH --job-name={job.name}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.each}",
        "#SBATCH --exclusive",
        *_exports(job),
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    ]
    meet = f"--rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:{PORT} --rdzv_id $SLURM_JOB_ID"
    command = f"srun torchrun --nnodes {job.nodes} --nproc_per_node {job.each} {meet} {job.program}"
    return "\n".join([*head, *_files(job), command])


def kubernetes(job: LaunchJob) -> str:
    """A PyTorchJob of the Kubeflow training operator: one worker for each node."""
    command = _start(job, "${PET_NODE_RANK:-${RANK:-0}}", "${MASTER_ADDR:-localhost}")
    script = "\n".join([*_exports(job), *_files(job), command])
    lines = [
        "apiVersion: kubeflow.org/v1",
        "kind: PyTorchJob",
        "metadata:",
        f"  name: {job.name}",
        "spec:",
        f'  nprocPerNode: "{job.each}"',
        "  pytorchReplicaSpecs:",
        "    Worker:",
        f"      replicas: {job.nodes}",
        "      restartPolicy: OnFailure",
        "      template:",
        "        spec:",
        "          containers:",
        "            - name: pytorch",
        "              image: YOUR_IMAGE",
        "              resources:",
        "                limits:",
        f"                  nvidia.com/gpu: {job.each}",
        "              command:",
        "                - bash",
        "                - -c",
        "                - |",
        *_indented(script, 18),
    ]
    return "\n".join(lines)


def skypilot(job: LaunchJob) -> str:
    """A task for `sky launch`."""
    name = ACCELERATORS.get(job.chip, job.chip)
    command = _start(job, "${SKYPILOT_NODE_RANK}", "$MASTER_ADDR")
    meet = 'export MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
    script = "\n".join([*_exports(job), meet, *_files(job), command])
    lines = [
        f"name: {job.name}",
        f"num_nodes: {job.nodes}",
        "resources:",
        f"  accelerators: {name}:{job.each}",
        "run: |",
        *_indented(script, 2),
    ]
    return "\n".join(lines)


def _indented(text: str, by: int) -> list[str]:
    return [f"{' ' * by}{line}".rstrip() for line in text.splitlines()]


LAUNCHERS: Mapping[str, Callable[[LaunchJob], str]] = {
    "torchrun": torchrun,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "skypilot": skypilot,
}
"""How a job can be started."""
