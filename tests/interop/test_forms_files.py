"""Forms beside the shell: manifests, tasks, charts, compose files, notebooks, programs, configurations."""

import json
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.interop.forms import LaunchedProcess, gpu_count, read_form
from foretell.interop.user_files import names_only

DEPLOYMENT = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data:
  spec.json: '{"num_speculative_tokens": 3}'
  start.sh: |
    exec vllm serve from-a-file
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: server
spec:
  replicas: 3
  template:
    spec:
      nodeSelector:
        cloud.google.com/gke-accelerator: nvidia-l4
      containers:
      - name: main
        image: vllm/vllm-openai:v0.10.0
        command: ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        args:
        - --model=$(MODEL_ID)
        - --speculative-config=$(SPEC)
        - --tensor-parallel-size
        - "2"
        env:
        - name: MODEL_ID
          value: org/model
        - name: SPEC
          valueFrom:
            configMapKeyRef: {name: c, key: spec.json}
        - name: TOKEN
          valueFrom:
            secretKeyRef: {name: s, key: k}
        resources:
          limits:
            nvidia.com/gpu: "2"
      - name: sidecar
        image: prom
        args: [--port, "1"]
"""


def only(text: str) -> LaunchedProcess:
    found = read_form(text).processes
    assert len(found) == 1, [one.program for one in found]
    return found[0]


def argv(process: LaunchedProcess) -> str:
    return " ".join(word.text for word in process.argv)


def test_a_deployment_with_its_variables() -> None:
    process = only(DEPLOYMENT)
    assert process.program == "vllm.entrypoints.openai.api_server"
    assert "--model=org/model" in argv(process)
    assert '--speculative-config={"num_speculative_tokens": 3}' in argv(process)
    assert process.env["TOKEN"].unknown == ("TOKEN",)
    count = gpu_count(process.facts)
    assert (count.per_node, count.accelerator) == (2, "nvidia-l4")
    copies = process.fact("replicas")
    assert copies is not None
    assert (copies.value, DEPLOYMENT.splitlines()[copies.line - 1].strip()) == (3, "replicas: 3")
    line = next(word.line for word in process.argv if word.text == "--tensor-parallel-size")
    assert DEPLOYMENT.splitlines()[line - 1].strip() == "- --tensor-parallel-size"


def test_a_script_inside_a_manifest_keeps_its_lines() -> None:
    text = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &t
        spec:
          containers:
          - name: pytorch
            command:
            - bash
            - -c
            - |
              set -e
              export A=4
              torchrun --nnodes 4 --nproc_per_node 8 train.py \\
                --tp $A
            resources: {limits: {nvidia.com/gpu: 8}}
    Worker:
      replicas: 3
      template: *t
"""
    process = only(text)
    assert gpu_count(process.facts).gpus == 32
    word = next(word for word in process.argv if word.text == "--tp")
    assert text.splitlines()[word.line - 1].strip() == "--tp $A"
    copies = process.fact("replicas")
    assert copies is not None
    assert copies.value == 4


def test_a_group_of_pods_is_one_server() -> None:
    text = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: leader
          command: [sh, -c, "vllm serve m --tensor-parallel-size 8 --pipeline-parallel-size 2"]
          resources: {limits: {nvidia.com/gpu: "8"}}
    workerTemplate:
      spec:
        containers:
        - name: worker
          command: [sh, -c, "sleep infinity"]
          resources: {limits: {nvidia.com/gpu: "8"}}
"""
    process = only(text)
    count = gpu_count(process.facts)
    assert (count.gpus, count.nodes) == (16, 2)
    copies = process.fact("replicas")
    assert copies is not None
    assert copies.value == 2


SERVICES = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec:
  envs:
  - {name: SHARED, value: "1"}
  services:
    Frontend:
      replicas: 1
      extraPodSpec: {mainContainer: {command: [python3], args: [-m, dynamo.frontend]}}
    Prefill:
      replicas: 2
      resources: {limits: {gpu: "1"}}
      extraPodSpec: {mainContainer: {command: [python3], args: [-m, dynamo.vllm, --model, m]}}
    Decode:
      multinode: {nodeCount: 2}
      resources: {limits: {gpu: "4"}}
      extraPodSpec: {mainContainer: {command: [python3], args: [-m, dynamo.vllm, --model, m, --tp, "8"]}}
"""
COMPONENTS = """
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
spec:
  components:
  - name: a
    type: prefill
    replicas: 2
    podTemplate: &p
      spec:
        containers:
        - name: main
          command: [python3, -m, dynamo.vllm]
          args: [--model, m]
          resources: {limits: {nvidia.com/gpu: "1"}}
  - name: b
    type: decode
    podTemplate:
      spec:
        containers:
        - name: main
          command: [python3, -m, dynamo.vllm]
          args: [--model, m, --tp, "8"]
          resources: {limits: {nvidia.com/gpu: "8"}}
"""


@pytest.mark.parametrize("text", [SERVICES, COMPONENTS])
def test_halves_of_a_split_service(text: str) -> None:
    found = read_form(text).processes
    assert [one.program for one in found] == ["dynamo.vllm", "dynamo.vllm"]
    roles = [str(role.value) for one in found if (role := one.fact("role"))]
    assert roles == ["prefill", "decode"]
    assert [gpu_count(one.facts).gpus for one in found] == [1, 8]
    first = found[0].fact("replicas")
    assert first is not None
    assert first.value == 2


def test_a_predictor_and_a_chart() -> None:
    predictor = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec:
  predictor:
    minReplicas: 2
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama3, --tensor-parallel-size=4]
      resources: {limits: {nvidia.com/gpu: "4"}}
"""
    process = only(predictor)
    assert process.image == "huggingface"
    assert gpu_count(process.facts).gpus == 4
    chart = """
modelArtifacts:
  name: org/model
decode:
  replicas: 1
  parallelism: {tensor: 4}
  containers:
  - image: ghcr.io/llm-d/llm-d:v0.3
    modelCommand: vllmServe
    args: [--max-model-len, "8192"]
    resources: {limits: {nvidia.com/gpu: "4"}}
prefill:
  replicas: 3
  parallelism: {tensor: 1}
  containers:
  - modelCommand: vllmServe
    resources: {limits: {nvidia.com/gpu: "1"}}
"""
    found = read_form(chart).processes
    assert [argv(one) for one in found] == [
        "vllm serve org/model --tensor-parallel-size 4 --max-model-len 8192",
        "vllm serve org/model --tensor-parallel-size 1",
    ]
    assert [one.name for one in found] == ["decode", "prefill"]


def test_ray_serve_is_a_server_of_vllm() -> None:
    text = """
applications:
- name: llms
  import_path: ray.serve.llm:build_openai_app
  args:
    llm_configs:
    - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen2.5-32B-Instruct}
      accelerator_type: A10G
      deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 4}}
      engine_kwargs:
        tensor_parallel_size: 4
        enable_prefix_caching: true
"""
    process = only(text)
    assert argv(process) == (
        "vllm serve Qwen/Qwen2.5-32B-Instruct --tensor-parallel-size 4 --enable-prefix-caching"
    )
    assert gpu_count(process.facts).accelerator == "A10G"
    line = next(word.line for word in process.argv if word.text == "4")
    assert "tensor_parallel_size" in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("text", "nodes", "each", "chip"),
    [
        ("resources:\n  accelerators: H100:8\nnum_nodes: 2\nrun: |\n  python t.py\n", 2, 8, "H100"),
        ("resources:\n  accelerators: {A100-80GB: 4}\nrun: python t.py\n", 1, 4, "A100-80GB"),
        ("type: task\nnodes: 2\ncommands:\n- python t.py\nresources:\n  gpu: MI300X:8\n", 2, 8, "MI300X"),
        ("type: service\ncommands:\n- python t.py\nresources:\n  gpu: H100:80GB:2\n", None, 2, "H100"),
        ("type: task\ncommands:\n- python t.py\nresources:\n  gpu: {name: H20, count: 4}\n", None, 4, "H20"),
    ],
)  # fmt: skip
def test_tasks_of_clouds(text: str, nodes: int | None, each: int, chip: str) -> None:
    count = gpu_count(only(text).facts)
    assert (count.nodes, count.per_node, count.accelerator) == (nodes, each, chip)


def test_a_task_knows_what_its_cloud_sets() -> None:
    text = (
        "envs:\n  MODEL: org/model\nresources:\n  accelerators: L4:4\n"
        "run: |\n  vllm serve $MODEL --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE\n"
    )
    assert argv(only(text)) == "vllm serve org/model --tensor-parallel-size 4"


def test_compose_files_and_images() -> None:
    compose = """
services:
  web: {image: nginx, command: [nginx]}
  llm:
    image: vllm/vllm-openai
    environment: [HF_HOME=/x]
    command: >
      --model org/model
      --tensor-parallel-size ${TP:-2}
    deploy:
      replicas: 2
      resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0", "1"], capabilities: [gpu]}]}}
"""
    process = only(compose)
    assert (process.name, process.image) == ("llm", "vllm/vllm-openai")
    assert argv(process) == "--model org/model --tensor-parallel-size 2"
    assert gpu_count(process.facts).gpus == 2
    image = 'FROM base\nENV TP=4\nENTRYPOINT ["vllm", "serve"]\nCMD ["m", "--tensor-parallel-size", "$TP"]\n'
    assert read_form(image).form == "dockerfile"
    assert argv(only(image)) == "vllm serve m --tensor-parallel-size 4"


def test_a_unit_of_systemd_keeps_its_lines() -> None:
    text = "[Unit]\nA=b\n\n[Service]\nEnvironment=TP=2\nExecStart=/usr/bin/vllm serve m \\\n  -tp ${TP}\n"
    process = only(text)
    assert argv(process) == "/usr/bin/vllm serve m -tp 2"
    assert [word.line for word in process.argv] == [6, 6, 6, 7, 7]


def test_notebooks_and_programs() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["!python no.py\n"]},
        {"cell_type": "code", "source": ["%pip install x\n", "import a\n", "b = 1"]},
        {"cell_type": "code", "source": ["!torchrun --nproc_per_node 2 t.py \\\n", "  --x 1"]},
    ]
    text = json.dumps({"cells": cells, "nbformat": 4}, indent=1)
    found = read_form(text)
    assert found.form == "notebook"
    assert "import a" in found.python
    assert found.python.splitlines().index("import a") == next(
        at for at, row in enumerate(text.splitlines()) if "import a" in row
    )
    assert [argv(one) for one in found.processes] == ["t.py --x 1"]
    program = (
        "import subprocess\nfrom vllm import LLM\nM = 'org/model'\n"
        "llm = LLM(model=M, tensor_parallel_size=2, enforce_eager=True, seed=n)\n"
        "subprocess.run(['torchrun', '--nproc_per_node', '4', 'a.py'])\n"
    )
    server, other = read_form(program).processes
    assert argv(server) == (
        "vllm serve --model org/model --tensor-parallel-size 2 --enforce-eager --seed ${n}"
    )
    assert (other.program, gpu_count(other.facts).gpus) == ("a.py", 4)


@pytest.mark.parametrize(
    ("text", "key", "value", "line"),
    [
        ("a:\n  b: 1\n  c: [x, y]\n", "a.c", ["x", "y"], 3),
        ("a:\n- b: 1\n- b: 2\n", "a.1.b", 2, 3),
        ('{\n "a": {"b": 1},\n "c": {\n  "b": 2\n }\n}', "c.b", 2, 4),
        ("[a]\nb = 1\n[c.d]\nb = 2\n", "c.d.b", 2, 4),
        ("x: {{ .Values.y }}\n{{- if z }}\nw: 1\n", "w", 1, 3),
        ("d: !include other.yaml\n", "d", "!include other.yaml", 1),
    ],
)
def test_settings_know_their_lines(text: str, key: str, value: object, line: int) -> None:
    found = {one.key: one for one in read_form(text).settings}
    assert (found[key].value, found[key].line) == (value, line)


def test_files_beside_are_opened_inside_the_folder_alone(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "out.sh").write_text("B=8\n")
    (inside / "env.sh").write_text("A=4\n")
    (inside / "job.sh").write_text("python t.py --a $A --b $1\n")
    script = inside / "run.sh"
    script.write_text('source "$(dirname "$0")/env.sh"\nsource ../out.sh\nbash job.sh $B\n')
    found = read_form(script)
    assert [argv(one) for one in found.processes] == ["t.py --a 4 --b ${B}"]
    assert found.missing == ("../out.sh",)
    with names_only():
        hidden = read_form(script.read_text(), inside)
    assert hidden.missing == ("./env.sh", "../out.sh", "job.sh")


@pytest.mark.parametrize("text", ["", "  \n", "a: b: c\n", "{", "[a]\nb"])
def test_what_is_none_of_the_forms_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_form(text)


MOSAIC = """
image: mosaicml/llm-foundry
compute: {gpus: 16, gpu_type: h100_80gb}
command: |
  cd llm-foundry/scripts
  composer train/train.py /mnt/config/parameters.yaml
parameters:
  max_seq_len: 4096
"""
AZURE = """
command: >-
  torchrun train.py --x 1
distribution: {type: pytorch, process_count_per_instance: 8}
resources: {instance_count: 2}
"""
DETERMINED = """
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
resources: {slots_per_trial: 16}
"""
SAGEMAKER = (
    "from sagemaker.pytorch import PyTorch\nN = 2\ne = PyTorch(entry_point='train.py', instance_count=N,\n"
    "  instance_type='ml.p4d.24xlarge', hyperparameters={'max_length': 512})\n"
)


@pytest.mark.parametrize("text", [MOSAIC, AZURE, DETERMINED, SAGEMAKER])
def test_jobs_of_platforms(text: str) -> None:
    process = only(text)
    assert gpu_count(process.facts).gpus == 16
    assert process.program.endswith("train.py")
    if text == MOSAIC:
        assert json.loads(process.files["parameters.yaml"]) == {"max_seq_len": 4096}
    if text == SAGEMAKER:
        assert argv(process) == "train.py --max_length 512"
        assert [word.line for word in process.argv] == [3, 4, 4]


def test_lines_of_a_text_that_yaml_folds() -> None:
    text = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [bash, -c]
    args:
    - >-
      ulimit -l unlimited &&
      exec vllm serve m
      --tensor-parallel-size 8
    resources: {limits: {nvidia.com/gpu: 8}}
"""
    word = next(one for one in only(text).argv if one.text.startswith("--tensor"))
    assert "--tensor-parallel-size" in text.splitlines()[word.line - 1]


def test_an_experiment_of_beaker() -> None:
    text = """
version: v2
budget: a/b
tasks:
- name: t
  replicas: 2
  image: {beaker: x}
  command: [/bin/sh, -c]
  arguments: ['
    cd x && torchrun --nproc_per_node 8 --nnodes 2
    train.py
    --tp 4
  ']
  resources: {gpuCount: 8}
"""
    process = only(text)
    assert gpu_count(process.facts).gpus == 16
    assert "--tp 4" in text.splitlines()[process.argv[-1].line - 1]
