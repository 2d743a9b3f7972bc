"""A shell script as the processes that it launches: words, lines, launchers, what is not known."""

import pytest

from foretell.interop.forms import LaunchedProcess, gpu_count, read_form


def only(text: str) -> LaunchedProcess:
    found = read_form(text).processes
    assert len(found) == 1, [one.program for one in found]
    return found[0]


def words(text: str) -> str:
    return " ".join(word.text for word in only(text).argv)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("N=4\npython t.py --n $N ${M:-8} ${M:=9} $M", "t.py --n 4 8 9 9"),
        ("A=(--x 1 # a comment\n --y '2 3')\nA+=(--z)\npython t.py \"${A[@]}\"", "t.py --x 1 --y 2 3 --z"),
        ("P=/a/b/c.tar.gz; python t.py ${P##*/} ${P%%.*} ${P/b/X} ${P%.gz}",
         "t.py c.tar.gz /a/b/c /a/X/c.tar.gz /a/b/c.tar"),
        ("B=8; M=2; python t.py $((B / M * 3 - 1)) $(( B>4 ? 1 : 0 ))", "t.py 11 1"),
        ("O=' --a 1 \\\n --b 2 '\npython t.py $O --c", "t.py --a 1 \\ --b 2 --c"),
        ('O=" --a 1 \\\n --b 2 "\npython t.py $O --c', "t.py --a 1 --b 2 --c"),
        ('if [ -z "$X" ]; then Y=1; else Y=2; fi; python t.py $Y', "t.py 1"),
        ("X=b; case $X in a) Y=1;; b|c) Y=2;; *) Y=3;; esac; python t.py $Y", "t.py 2"),
        ("run() { python t.py --n $1 ${2:-d}; }\nrun 5", "t.py --n 5 d"),
        ("N=$(basename /a/b.json .json); python t.py $N `echo 7`", "t.py b 7"),
        ("C='python t.py --a'; eval $C 1", "t.py --a 1"),
        ('for i in 1 2; do L+=" $i"; done; python t.py $L', "t.py 1 2"),
        ("read -r -d '' C <<EOF\nt.py --a 1\nEOF\npython $C", "t.py --a 1"),
        ("declare -A S=([a]=1 [b]=2); K=b; python t.py ${S[$K]} ${#S[@]}", "t.py 2 2"),
        ('export X=" a "b=$((1+1))" c"; python t.py $X', "t.py a b=2 c"),
        ('N=$((2*(3+5)))\nB=$(( N / 3 % 4 + 10 - 1 ))\n: "${C:=7}"\npython t.py $N ${B} $C', "t.py 16 10 7"),
        ("B='x y' t.py \"$A\" ${B} a#b 'q r' --k=\"v w\" # gone", "t.py ${A} ${B} a#b q r --k=v w"),
        ('IFS="," read -ra G <<< "0,1,5"; python t.py ${#G[@]} ${G[2]}', "t.py 3 5"),
        ("python t.py --a 1 `# note` \\\n --b 2", "t.py --a 1 --b 2"),
        ("python t.py \\\n --a 1 \\\n # --b 2 \\\n --c 3", "t.py --a 1"),
        ("f() { local n=$1; shift; python t.py $n \"$@\"; }; f 8 --x 1", "t.py 8 --x 1"),
        ("torchrun $DISTRIBUTED_ARGS t.py --x", "t.py --x"),
        ("t.py --x $((1/0)) --y $((A+1))", "t.py --x $((1/0)) --y $((A+1))"),
    ],
)  # fmt: skip
def test_what_a_shell_would_pass(script: str, expected: str) -> None:
    assert words(script) == expected


def test_nothing_that_prepares_is_a_launch() -> None:
    text = """
mkdir -p out
[ -z "$X" ] && echo no
if [[ $N -gt 1 ]]; then pip install vllm; fi
docker pull image
ray stop --force
nvidia-smi
export A=1
git clone x
cat f | grep b
kubectl get pods
"""
    assert read_form(text).processes == ()


def test_launchers_are_layers_around_the_program() -> None:
    text = (
        'nohup srun -N2 --gres=gpu:h100:8 numactl -N 0 bash -c "torchrun --nnodes=2 --nproc_per_node 8 '
        '-m pkg.train --lr 1" > log 2>&1 &'
    )
    process = only(text)
    assert process.program == "pkg.train"
    names = [layer.name for layer in process.layers]
    assert names == ["nohup", "srun", "numactl", "bash -c", "torchrun"]
    assert process.background
    assert gpu_count(process.facts).gpus == 16
    assert gpu_count(process.facts).accelerator == "h100"


@pytest.mark.parametrize(
    ("command", "program", "layers"),
    [
        (
            "python3 -u -m torch.distributed.run --nproc_per_node 8 a.py",
            "a.py",
            ["python -m", "torchrun"],
        ),
        (
            "accelerate launch --config_file f.yaml --num_processes 8 a.py --x",
            "a.py",
            ["accelerate"],
        ),
        ("deepspeed --num_gpus 8 --module pkg.cli --x 1", "pkg.cli", ["deepspeed"]),
        ("mpirun -np 8 -x A=1 --bind-to none python a.py", "a.py", ["mpirun", "python"]),
        ("docker run --rm -it --gpus all -e A=1 -v /a:/b img vllm serve m", "vllm", ["docker"]),
        (
            "singularity exec --nv --bind /a x.sif torchrun a.py",
            "a.py",
            ["singularity", "torchrun"],
        ),
        (
            "ray job submit --address=x --runtime-env-json='{}' -- python3 a.py",
            "a.py",
            ["ray job", "python"],
        ),
        ("uv run --extra vllm python a.py", "a.py", ["uv", "python"]),
        ("env A=1 B=2 timeout 10 taskset -c 0 ./prog x", "./prog", ["env", "timeout", "taskset"]),
        ("nsys profile -o out --trace cuda python a.py", "a.py", ["nsys", "python"]),
        ("ssh host 'python a.py --n 1'", "a.py", ["ssh", "python"]),
        (
            "kubectl exec -i pod -c main -- bash -c 'python a.py'",
            "a.py",
            ["kubectl", "bash -c", "python"],
        ),
        ("sbatch --nodes=2 --wrap 'python a.py'", "a.py", ["sbatch", "python"]),
        ("$LAUNCHER a.py", "a.py", ["LAUNCHER"]),
    ],
)
def test_each_launcher_is_taken_off(command: str, program: str, layers: list[str]) -> None:
    process = only(command)
    assert process.program == program
    assert [layer.name for layer in process.layers] == layers


def test_words_know_their_lines() -> None:
    text = (
        'TP=2\nGPT=" \\\n  --layers 4 \\\n  --tp $TP \\\n"\npython t.py \\\n  $GPT \\\n  --x $TP\n'
    )
    argv = only(text).argv
    found = {word.text: word.line for word in argv if word.text.startswith("--")}
    assert found == {"--layers": 3, "--tp": 4, "--x": 8}
    assert [(word.line, word.set_line) for word in argv if word.text == "2"] == [(4, 1), (8, 1)]


def test_what_only_the_cluster_knows_stays_unknown_by_name() -> None:
    text = """
GPUS_PER_NODE=$(nvidia-smi -L | wc -l)
WORLD=$(($GPUS_PER_NODE * $SLURM_NNODES))
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $SLURM_NNODES t.py --w $WORLD --m $MODEL $EXTRA_ARGS "$@"
"""
    process = only(text)
    by_text = {word.raw: word.unknown for word in process.argv}
    assert by_text["$MODEL"] == ("MODEL",)
    assert set(by_text["$WORLD"]) == {"GPUS_PER_NODE", "SLURM_NNODES"}
    assert set(gpu_count(process.facts).unknown) == {"GPUS_PER_NODE", "SLURM_NNODES"}
    assert process.extras == ("EXTRA_ARGS", "@")


def test_batch_lines_give_what_slurm_would_set() -> None:
    text = """#!/bin/bash
#SBATCH --nodes=4   # a comment
#SBATCH --gres=gpu:a100:8
NNODES=$SLURM_NNODES
GPUS=$(nvidia-smi --list-gpus | wc -l)
N=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)
srun torchrun --nnodes $NNODES --nproc_per_node $GPUS t.py --n $N
"""
    process = only(text)
    count = gpu_count(process.facts)
    assert (count.gpus, count.nodes, count.accelerator) == (32, 4, "A100-80GB")
    assert process.argv[-1].text == "4"


def test_an_undecided_branch_leaves_what_differs_open() -> None:
    text = """
if command -v nvidia-smi; then G=8; S=1; else G=0; S=1; fi
python t.py --g $G --s $S
"""
    assert [word.unknown for word in only(text).argv] == [(), (), ("G",), (), ()]


def test_a_check_that_exits_is_not_followed() -> None:
    text = """
if [ $# -lt 1 ]; then echo usage; exit 1; fi
[ -z "$MODEL" ] && { echo no; exit 1; }
SIZE=$1
if [ "$SIZE" = 7B ]; then L=32; elif [ "$SIZE" = 13B ]; then L=40; fi
python t.py --layers $L --model $MODEL
"""
    assert [word.unknown for word in only(text).argv] == [(), (), ("SIZE",), (), ("MODEL",)]


def test_files_that_a_script_writes() -> None:
    text = """
Z=3
cat > ds.json <<EOF
{"zero_optimization": {"stage": $Z}}
EOF
cat > job.sh <<'EOF'
python t.py --deepspeed ds.json
EOF
sbatch --nodes 2 job.sh
"""
    process = only(text)
    assert process.files["ds.json"] == '{"zero_optimization": {"stage": 3}}\n'
    assert process.program == "t.py"
    assert process.layer("sbatch") is not None


def test_servers_side_by_side_are_processes_of_their_own() -> None:
    text = """
for i in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$i vllm serve m --port $((8000 + i)) &
done
wait
"""
    found = read_form(text).processes
    assert [one.argv[-1].text for one in found] == ["8000", "8001", "8002", "8003"]
    assert all(gpu_count(one.facts).gpus == 1 for one in found)


def test_lists_of_arguments_alone_are_what_a_text_is_about() -> None:
    process = only('MODEL_ARGS="--num-layers 70 \\\n --hidden-size 12288"\n')
    assert [word.text for word in process.argv] == ["--num-layers", "70", "--hidden-size", "12288"]
    assert process.program == ""


@pytest.mark.parametrize(
    "text",
    ["((", "if [ ", "a=(", "${", "$(", "`", "cat <<EOF", "x=$((1/0))", "while true; do :; done",
     "f() { f; }; f", "source $0", "for ((;;)); do x=1; done", "'", '"', "case x in", "eval eval eval x",
     "A=$A; B=$B$B; python $A", "x=1; while [ $x -gt 0 ]; do x=$((x+1)); done; python t.py"],
)  # fmt: skip
def test_no_text_hangs_or_faults(text: str) -> None:
    read_form(text)


def test_of_commands_behind_an_undecided_branch_one_is_read_and_asked_for() -> None:
    text = """
NNODES=$1
if [ "$NNODES" -gt 1 ]; then
  torchrun --nnodes $NNODES --nproc_per_node 8 t.py --many
else
  torchrun --nproc_per_node 8 t.py --one
fi
"""
    found = read_form(text)
    assert [one.argv[-1].text for one in found.processes] == ["--many"]
    assert found.asks == ("NNODES (line 3) decides which command is started",)


def test_flags_that_the_caller_decides_are_asked_for() -> None:
    text = """
PRECISION=$1
ARGS=(--a 1)
if [ "$PRECISION" = fp8 ]; then ARGS+=(--fp8); fi
if [ -f checkpoint ]; then ARGS+=(--load checkpoint); fi
python t.py "${ARGS[@]}"
"""
    assert read_form(text).asks == ("PRECISION is not set in the file: it decides flags",)


def test_a_batch_script_inside_a_script() -> None:
    text = """
NODES=4
sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=$NODES
#SBATCH --gres=gpu:8
nodes=( \\$(scontrol show hostnames \\$SLURM_JOB_NODELIST) )
srun torchrun --nnodes \\${#nodes[@]} --nproc_per_node 8 t.py
EOT
"""
    assert gpu_count(only(text).facts).gpus == 32


def test_lines_of_a_script_that_a_script_writes() -> None:
    text = """A=1
inner=$(cat <<- EOM
  python t.py \\\\
    --a $A
EOM
)
echo "$inner" > inner.sh
torchrun --nproc_per_node 8 --no-python bash inner.sh
"""
    process = only(text)
    assert [(word.text, word.line) for word in process.argv] == [("t.py", 3), ("--a", 4), ("1", 4)]
