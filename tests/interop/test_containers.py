"""Commands inside containers, quotes and launchers: the words as without them, and files that lie beside."""

from pathlib import Path

import pytest

from foretell.api.launches import read_launch
from foretell.interop.arguments import parse_arguments
from foretell.interop.edited_launch import edited_launch, has_block
from foretell.interop.named_files import files_beside
from foretell.interop.user_files import names_only

SERVER = "vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --max-num-seqs 64"


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "docker run --gpus all --rm -it -e A=b -p 8000:8000 --ipc=host vllm/vllm-openai:v0.11.0 {}",
        "sudo docker container run -d --shm-size 8g --ulimit memlock=-1 --name x image {}",
        "podman run --device nvidia.com/gpu=all -v/a:/b image:tag {}",
        "apptainer exec --nv -B /a:/b image.sif {}",
        'bash -lc "cd /x && {}"',
        "docker run --gpus 2 --entrypoint bash image -c 'export X=1; {}'",
        "srun --container-image=a.sqsh --container-mounts=/a:/b --mpi=pmix {}",
    ],
)
def test_what_runs_inside_is_what_counts(around: str) -> None:
    alone, inside = (read_launch(text) for text in (SERVER, around.format(SERVER)))
    assert (inside.tool, inside.plan, inside.gpus) == (alone.tool, alone.plan, alone.gpus)
    assert (inside.unknown, inside.doubts) == ((), ())


@pytest.mark.parametrize(
    ("gpus", "many"),
    [("4", "4"), ("all", None), ("'\"device=0,1,2\"'", "3"), ("device=0", "1"), ("count=2", "2")],
)
def test_gpus_that_a_container_sees(gpus: str, many: str | None) -> None:
    given = parse_arguments(f"docker run --gpus {gpus} image torchrun pretrain_gpt.py --bf16")
    assert given.variables.get("gpus_per_node") == many


def test_mpirun_counts_processes() -> None:
    text = "mpirun -np 16 -x NCCL_DEBUG=INFO -mca btl ^openib python pretrain_gpt.py --bf16"
    launch = read_launch(f"{text} --tokenizer-model meta-llama/Llama-3.1-8B --seq-length 4096")
    assert (launch.gpus, launch.unknown) == (16, ())


def test_files_outside_the_folder_stay_closed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "in" / "b.json").write_text('{"zero_optimization": {"stage": 2}}')
    launch = tmp_path / "in" / "run.sh"
    text = f"deepspeed t.py --deepspeed ../a.json --deepspeed_config {tmp_path / 'a.json'} --deepspeed b.json"
    assert [one.name for one in files_beside(text, launch)] == ["b.json"]
    with names_only():
        assert files_beside(text, launch) == ()


@pytest.mark.parametrize(
    ("text", "key", "value", "wanted"),
    [
        ("a.py --mbs 2 # mbs\n", "mbs", "4", "a.py --mbs 4 # mbs\n"),
        ("a.py --mbs=2", "mbs", None, "a.py"),
        ("x:\n  mbs: 2  # small\n", "x.mbs", "4", "x:\n  mbs: 4  # small\n"),
        ("f(mbs=2, b=True)", "b", "false", "f(mbs=2, b=False)"),
        ("# mbs: 1\nmbs: 2\n", "mbs", "8", "# mbs: 1\nmbs: 8\n"),
        ('{\n  "mbs": 2,\n  "b": 1\n}', "mbs", "4", '{\n  "mbs": 4,\n  "b": 1\n}'),
        ("M=2\na.py --mbs $M\n", "mbs", "4", "M=4\na.py --mbs $M\n"),
        (
            "M=${M:-2}\na.py --mbs ${M} \\\n  -b\n",
            "mbs",
            "4",
            "M=${M:-4}\na.py --mbs ${M} \\\n  -b\n",
        ),
        ("M=2\na.py --mbs $M --log $M\n", "mbs", "4", "M=2\na.py --mbs 4 --log $M\n"),
        ("a.py \\\n  --mbs 2 \\\n  -b\n", "mbs", None, "a.py \\\n  -b\n"),
        ("[a]\nmbs = 2 # small\n", "a.mbs", "4", "[a]\nmbs = 4 # small\n"),
    ],
)
def test_a_key_is_changed_where_it_stands(
    text: str, key: str, value: str | None, wanted: str
) -> None:
    assert edited_launch(text, {key: value}) == wanted


def test_a_new_key_stands_beside_another() -> None:
    assert edited_launch("mbs: 2 # a\n", {"on": "true"}, ["mbs"]) == "mbs: 2 # a\non: true\n"
    assert edited_launch("p.py --mbs 2 -v", {"s": "a b"}, ["mbs"]) == "p.py --mbs 2 --s 'a b' -v"
    assert edited_launch("f(mbs=2)", {"s": "a b"}, ["mbs"]) == "f(mbs=2, s='a b')"
    assert edited_launch("f(\n    mbs = 2, # a\n)", {"s": "b"}, ["mbs"]) == (
        "f(\n    mbs = 2, # a\n    s='b',\n)"
    )
    assert edited_launch("nothing", {"s": "1"}) is None


def test_a_new_key_stands_in_the_block_of_its_own_path() -> None:
    text = (
        "actor_train:\n  strategy_args:\n    strategy_name: x\nsft_train:\n  strategy_args:\n"
        "    strategy_config:  # of the trainer\n      ep_size: 8\n"
    )
    key = "sft_train.strategy_args.strategy_config.tensor_model_parallel_size"
    changed = edited_launch(text, {key: "2"})
    assert changed == text.replace("trainer\n", "trainer\n      tensor_model_parallel_size: 2\n")
    assert has_block(text, "sft_train.strategy_args.strategy_config")
    assert not has_block(text, "actor_train.strategy_args.strategy_config")
    assert edited_launch(text, {key.replace("sft", "critic"): "2"}, ["sft_train.ep_size"]) is None
