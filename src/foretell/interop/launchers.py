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


def batch_script(name: str, nodes: int, each: int, lines: list[str], *more: str) -> str:
    """Slurm's batch script: a task for each node, with `more` options."""
    head = [
        f"job-name={name}",
        f"nodes={nodes}",
        "ntasks-per-node=1",
        f"gpus-per-node={each}",
        *more,
    ]
    return "\n".join(["#!/bin/bash", *(f"#SBATCH --{one}" for one in head), *lines])


def task(name: str, nodes: int, each: int, chip: str, script: str) -> str:
    """SkyPilot's task."""
    head = f"name: {name}\nnum_nodes: {nodes}\nresources:\n"
    asked = f"  accelerators: {ACCELERATORS.get(chip, chip)}:{each}\n"
    return f"{head}{asked}run: |\n{indented(script, 2)}"


def container(name: str, each: int, script: str) -> str:
    """A container of Kubernetes that runs a script on the GPUs of a node, as an element of a list."""
    return f"""- name: {name}
  image: YOUR_IMAGE
  resources:
    limits:
      nvidia.com/gpu: {each}
  command:
    - bash
    - -c
    - |
{indented(script, 6)}"""


def slurm(job: LaunchJob) -> str:
    """A batch script: a task for each node, which starts a process for each of its GPUs."""
    meet = f"--rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:{PORT} --rdzv_id $SLURM_JOB_ID"
    lines = [
        *_exports(job),
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        *_files(job),
        f"srun torchrun --nnodes {job.nodes} --nproc_per_node {job.each} {meet} {job.program}",
    ]
    return batch_script(job.name, job.nodes, job.each, lines, "exclusive")


def kubernetes(job: LaunchJob) -> str:
    """A PyTorchJob of the Kubeflow training operator: one worker for each node."""
    command = _start(job, "${PET_NODE_RANK:-${RANK:-0}}", "${MASTER_ADDR:-localhost}")
    script = "\n".join([*_exports(job), *_files(job), command])
    return f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {job.name}
spec:
  nprocPerNode: "{job.each}"
  pytorchReplicaSpecs:
    Worker:
      replicas: {job.nodes}
      restartPolicy: OnFailure
      template:
        spec:
          containers:
{indented(container("pytorch", job.each, script), 12)}"""


def skypilot(job: LaunchJob) -> str:
    """A task for `sky launch`."""
    command = _start(job, "${SKYPILOT_NODE_RANK}", "$MASTER_ADDR")
    meet = 'export MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'
    script = "\n".join([*_exports(job), meet, *_files(job), command])
    return task(job.name, job.nodes, job.each, job.chip, script)


def indented(text: str, by: int) -> str:
    """A text with every line set in."""
    return "\n".join(f"{' ' * by}{line}".rstrip() for line in text.splitlines())


LAUNCHERS: Mapping[str, Callable[[LaunchJob], str]] = {
    "torchrun": torchrun,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "skypilot": skypilot,
}
"""How a job can be started."""
