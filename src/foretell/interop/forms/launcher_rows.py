"""Launchers as rows: which of their options take no value, or which do; and commands that launch nothing."""

import re
from collections.abc import Mapping

from foretell.records import dataclass


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the own options of a launcher are told from the command behind them."""

    switches: frozenset[str] = frozenset()
    """Options without a value, where every other one has a value."""
    values: frozenset[str] | None = None
    """Options with a value, where every other one has none."""
    verbs: tuple[str, ...] = ()
    """Words that follow its name when it launches something: `accelerate launch`."""
    skips: int = 0
    """Words behind the options that are its own: a host, a duration, an image."""
    image: bool = False
    """Whether the word that is skipped is an image."""
    joins: bool = False
    """Whether the words behind it are joined and read as a script: ssh."""
    script: bool = False
    """Whether the word behind its options is a file with a script: bash, sbatch."""
    python: bool = False
    """Whether the program is of Python: a file, or a module behind -m."""
    dashes: bool = False
    """Whether the command is what stands behind `--`."""
    command: str = ""
    """The option that holds a whole command as one word: `--command`."""


PYTHON_SWITCHES = _set("-u -O -OO -B -s -S -I -E -q -v -d -i -x -b -P")
"""Options of an interpreter without a value."""
_DOCKER = Launcher(
    switches=_set(
        """-d -i -t -it -ti -dit -itd -dti -di -id -td -P -q --detach --rm --interactive --tty --privileged
        --init --read-only --publish-all --no-healthcheck --oom-kill-disable --disable-content-trust --quiet
        --tls-verify"""
    ),
    verbs=("run", "exec"), skips=1, image=True,
)  # fmt: skip
_APPTAINER = Launcher(
    switches=_set(
        """--nv --rocm --cleanenv -e --writable-tmpfs --no-home --containall -C --contain -c --fakeroot -f
        --compat --no-mount --nvccli --writable -w --userns -u --no-init --silent -s --quiet -q"""
    ),
    verbs=("exec", "run"), skips=1, image=True,
)  # fmt: skip
_MPI = Launcher(
    values=_set(
        """-np -n -N -c -H -host --host -hostfile --hostfile -machinefile --machinefile -f -map-by --map-by
        -bind-to --bind-to -x -ppn --ppn -npernode --npernode -wdir --wdir -rank-by --rank-by -prefix --prefix
        -genv --np --n -env --cpu-bind -d --depth -rankfile --rankfile -output-filename --output-filename
        -genvlist -iface --map-by --tag-output=x -perhost"""
    )
)
_TORCHRUN = Launcher(
    switches=_set("--standalone -m --module --no-python --run-path --use-env --virtual-local-rank"),
    python=True,
)
_SHELL = Launcher(
    switches=_set("-e -x -l -i -u -ex -eux -xe -ux -eu --login --norc --noprofile -v -s"),
    script=True,
)
LAUNCHERS: Mapping[str, Launcher] = {
    "srun": Launcher(switches=_set(
        """--exclusive --label -l --unbuffered -u --overlap --verbose -v --quiet -Q --pty --no-kill -k
        --disable-status -X --multi-prog --preserve-env --overcommit -O --contiguous --immediate -I --exact
        --container-writable --container-readonly --no-container-writable --container-remap-root
        --no-container-remap-root --container-mount-home --no-container-mount-home --spread-job
        --whole -K --kill-on-bad-exit --het-group=x --no-container-entrypoint --container-entrypoint
        --oversubscribe -s --external-launcher --mem-bind=x"""
    )),
    "mpirun": _MPI, "mpiexec": _MPI, "mpiexec.hydra": _MPI, "orterun": _MPI, "aprun": _MPI,
    "prterun": _MPI, "horovodrun": _MPI, "ibrun": Launcher(values=_set("-n -o")),
    "jsrun": Launcher(), "flux": Launcher(verbs=("run", "submit", "batch")),
    "torchrun": _TORCHRUN, "torch.distributed.run": _TORCHRUN, "torch.distributed.launch": _TORCHRUN,
    "torchrun.py": _TORCHRUN,
    "accelerate": Launcher(verbs=("launch",), python=True, switches=_set(
        """-m --module --no-python --multi-gpu --cpu --use-deepspeed --use-fsdp --use-megatron-lm --use-xpu
        --use-mps-device --tpu --tpu-use-cluster --no-tpu-cluster --tpu-use-sudo --debug --quiet -q
        --same-network
        --ipex --dynamo-use-dynamic --dynamo-use-fullgraph --dynamo-use-regional-compilation
        --enable-cpu-affinity --use-parallelism-config --fp8-use-autocast-during-eval -h"""
    )),
    "deepspeed": Launcher(python=True, switches=_set(
        """--no-local-rank --no-python --module --force-multi --save-pid --bind-cores-to-rank --no-ssh-check
        --no-ssh --elastic-training"""
    )),
    "docker": _DOCKER, "podman": _DOCKER, "nerdctl": _DOCKER, "nvidia-docker": _DOCKER,
    "apptainer": _APPTAINER, "singularity": _APPTAINER,
    "enroot": Launcher(verbs=("start", "exec"), skips=1, image=True,
                       switches=_set("--rw -w --root -r")),
    "shifter": Launcher(switches=_set("--mpi")),
    "env": Launcher(values=_set("-u --unset -C --chdir -S")),
    "sudo": Launcher(values=_set("-u -g -h -p -C")), "nohup": Launcher(values=_set("")),
    "time": Launcher(values=_set("-o -f")), "exec": Launcher(values=_set("-a")),
    "command": Launcher(values=_set("")), "builtin": Launcher(values=_set("")),
    "stdbuf": Launcher(values=_set("-i -o -e")), "nice": Launcher(values=_set("-n")),
    "ionice": Launcher(values=_set("-c -n")), "setsid": Launcher(values=_set("")),
    "unbuffer": Launcher(values=_set("")), "catchsegv": Launcher(values=_set("")),
    "timeout": Launcher(values=_set("-s -k --signal --kill-after"), skips=1),
    "taskset": Launcher(values=_set(""), skips=1), "numactl": Launcher(values=_set("-N -m -C -i -l -p")),
    "numa_run": Launcher(values=_set("")), "chrt": Launcher(values=_set(""), skips=1),
    "gosu": Launcher(skips=1), "tini": Launcher(values=_set("")), "dumb-init": Launcher(values=_set("")),
    "nsys": Launcher(verbs=("profile", "launch"), switches=_set("")),
    "ncu": Launcher(), "rocprof": Launcher(values=_set("-i -o -d -m")), "rocprofv3": Launcher(),
    "conda": Launcher(verbs=("run",), values=_set("-n --name -p --prefix --cwd")),
    "mamba": Launcher(verbs=("run",), values=_set("-n --name -p --prefix --cwd")),
    "micromamba": Launcher(verbs=("run",), values=_set("-n --name -p --prefix --cwd")),
    "poetry": Launcher(verbs=("run",)), "pipenv": Launcher(verbs=("run",)), "pdm": Launcher(verbs=("run",)),
    "pixi": Launcher(verbs=("run",), values=_set("-e --environment --manifest-path")),
    "uv": Launcher(verbs=("run",), python=True, values=_set(
        """--with --extra --group --python -p --project --env-file --directory --package --with-editable
        --with-requirements --index --index-url --config-file --no-extra --only-group"""
    )),
    "uvx": Launcher(values=_set("--with --from --python -p")),
    "ray": Launcher(verbs=("job submit",), switches=_set("--no-wait --verify -v --log-color=x")),
    "kubectl": Launcher(verbs=("exec", "run"), dashes=True), "oc": Launcher(verbs=("exec",), dashes=True),
    "ssh": Launcher(values=_set("-p -i -l -o -F -J -L -R -b -c -D -E -m"), skips=1, joins=True),
    "pdsh": Launcher(values=_set("-w -x -f -t -u -l -R"), joins=True),
    "clush": Launcher(values=_set("-w -x -g -f"), joins=True),
    "bash": _SHELL, "sh": _SHELL, "zsh": _SHELL, "dash": _SHELL, "ksh": _SHELL,
    "sbatch": Launcher(switches=_set(
        "--parsable --wait -W --exclusive --requeue --no-requeue --quiet -Q --hold -H --test-only"
    ), script=True),
    "qsub": Launcher(script=True), "bsub": Launcher(script=True),
    "xpk": Launcher(verbs=("workload create", "workload create-pathways"), command="--command",
                    switches=_set("--enable-autocheckpoint --use-vertex-tensorboard --use-pathways")),
    "gcloud": Launcher(command="--command", switches=_set("--quiet")),
    "runai": Launcher(verbs=("submit", "training submit", "submit-dist pytorch"), switches=_set(
        "--large-shm --attach --interactive -it --preemptible --host-ipc"), dashes=True),
    "composer": Launcher(values=_set("-n --nproc --world_size --base_rank --node_rank --master_addr "
                                     "--master_port --stdout --stderr"), python=True),
    "colossalai": Launcher(verbs=("run",), python=True),
    "determined.launch.torch_distributed": Launcher(values=_set("--hosts --host-addr")),
    "determined.launch.deepspeed": Launcher(values=_set("--hosts --host-addr")),
    "fabric": Launcher(verbs=("run",), python=True),
}  # fmt: skip
"""Launchers by name."""
OUTER = frozenset({"docker", "podman", "nerdctl", "nvidia-docker"})
"""Programs that run an image and whose `-e` sets a variable."""
UTILITIES = _set(
    """: [ [[ alias apt apt-get awk aws az basename bc bg break brew c++ cat cc cd chmod chown clear cmake
    cmp conda continue cp curl cut date declare df diff dirname disown dmesg dpkg dstat du echo expect
    export expr fallocate false fg find fuser g++ gcc gcsfuse gdown getopt getopts git gpustat grep
    groups gsutil gunzip gzip hash head help hf history hostname htop huggingface-cli ibdev2netdev
    ibstat ibv_devinfo id ifconfig install ip ipcs jobs jq kill killall ldconfig let ln local locale ls
    lsb_release lscpu lsof lspci make mamba md5sum micromamba mkdir mktemp ml mlnx_qos modprobe module
    mount mv nc ncat netstat ninja node npm nproc ntpdate nvcc nvidia-cuda-mps-control nvidia-smi nvtop
    openssl patch pgrep ping pip pip3 pixi pkill poetry popd printenv printf ps pushd pwd qstat read
    readlink readonly realpath reset return rm rmdir rocm-smi rsync sacct scancel scontrol scp screen
    sed seq service set setfacl sha256sum shift shopt show_gids sinfo sleep sort source spack split
    squeue ss sshpass stat stty su sync sysctl systemctl systemd-run tac tail tar tee test tmux top
    touch tput tr trap tree true tty type ufw ulimit umask unalias uname uniq unlink unset unzip
    update-alternatives vim wait wandb watch wc wget which who whoami xargs xz yes yum zcat zip"""
)
"""Commands that prepare, look or tidy up, and launch nothing."""
EXTRAS = re.compile(
    r"@|\*|\w*(?:ARGS|OPTS|OPTIONS|FLAGS|PARAMS|ARGUMENTS|OVERRIDES)\d*|(?:\w+_)?EXTRAS?",
    re.IGNORECASE,
)
"""Names of variables that hold further words of a command rather than one value."""
