"""Prints the options of released tools that no table of src/foretell/interop/tools gives a verdict on.

`python tools/tool_keys.py FOLDER [TOOL]` takes a folder of wheels and source archives (pip download
--no-deps) and of
checkouts of tools that no index has, each under its name. Sources are parsed, never run: fields of
dataclasses and
models followed through their types, `add_argument` calls, and trees of YAML. Each option is printed with its
default,
first those whose name sounds like time or memory and which need a verdict by hand, then the others; `--all`
prints
those that have a verdict too, `--json` all of them for a program.
"""

import ast
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SOURCES: Mapping[str, tuple[str, ...]] = {
    "trainer": ("transformers TrainingArguments", "transformers Seq2SeqTrainingArguments", "peft LoraConfig"),
    "trl": ("trl SFTConfig", "trl DPOConfig", "trl GRPOConfig", "trl RewardConfig", "trl ModelConfig",
    "trl ScriptArguments",
            "trl KTOConfig", "trl RLOOConfig"),
    "llamafactory": ("llamafactory ModelArguments", "llamafactory DataArguments",
    "llamafactory FinetuningArguments",
                     "llamafactory GeneratingArguments", "llamafactory TrainingArguments",
                     "transformers Seq2SeqTrainingArguments"),
    "axolotl": ("axolotl AxolotlInputConfig", "axolotl +integrations/*/args.py"),
    "ms-swift": ("ms_swift SftArguments", "ms_swift RLHFArguments", "ms_swift PretrainArguments",
                 "transformers Seq2SeqTrainingArguments", "ms_swift MegatronSftArguments",
                 "ms_swift MegatronRLHFArguments"),
    "verl": ("verl =trainer/config/_generated_ppo_trainer.yaml",
    "verl =trainer/config/_generated_ppo_megatron_trainer.yaml",
             "verl =trainer/config/sft_trainer_engine.yaml", "verl =trainer/config/engine/*.yaml"),
    "veomni": ("veomni VeOmniArguments", "veomni VeOmniVLMArguments"),
    "litgpt": ("litgpt TrainArgs", "litgpt EvalArgs", "litgpt LogArgs"),
    "areal": ("areal GRPOConfig", "areal PPOConfig", "areal SFTConfig"),
    "torchtitan": ("torchtitan JobConfig",),
    "skyrl": ("skyrl SkyRLTrainConfig",),
    "oumi": ("oumi TrainingConfig",),
    "nanotron": ("nanotron Config",),
    "openrlhf": ("openrlhf -cli/*.py",),
    "slime": ("slime -slime/utils/arguments.py", "slime -slime/backends/*/arguments.py"),
    "megatron": ("Megatron-LM -megatron/training/arguments.py", "megatron_core TransformerConfig",
                 "megatron_core OptimizerConfig", "megatron_core DistributedDataParallelConfig",
                 "Megatron-LM +megatron/training/config/*.py"),
    "gpt-neox": ("gpt-neox +megatron/neox_arguments/*_args.py",),
    "maxtext": ("maxtext =src/maxtext/configs/base.yml",),
    "nemo-rl": ("RL =examples/configs/grpo_math_1B.yaml", "RL =examples/configs/sft.yaml",
    "RL =examples/configs/dpo.yaml",
                "RL =examples/configs/grpo_math_1B_megatron.yaml", "RL =examples/configs/rm.yaml",
                "RL =examples/configs/distillation_math.yaml"),
    "roll": ("ROLL RLVRConfig", "ROLL AgenticConfig", "ROLL DPOConfig", "ROLL SFTConfig"),
    "prime-rl": ("prime-rl RLConfig", "prime-rl TrainerConfig", "prime-rl OrchestratorConfig",
    "prime-rl InferenceConfig"),
    "easyr1": ("EasyR1 =examples/config.yaml", "EasyR1 PPOConfig"),
    "deepspeed": ("deepspeed DeepSpeedZeroConfig",),
    "paddlenlp": ("paddlenlp TrainingArguments",),
}  # fmt: skip
"""Where each tool declares its options: a class, or files of classes (+), of add_argument calls (-), of YAML
(=)."""


def unpacked(folder: Path, into: Path) -> dict[str, Path]:
    """Package -> folder with its sources; archives are unpacked into a folder that goes again."""
    found: dict[str, Path] = {}
    for one in sorted(folder.iterdir()):
        name = re.split(r"-\d", one.name)[0]
        if one.is_dir():
            found[name] = one
        elif one.suffix == ".whl":
            zipfile.ZipFile(one).extractall(into / name)
            found[name] = into / name
        elif one.name.endswith(".tar.gz"):
            with tarfile.open(one) as whole:
                whole.extractall(into / name, filter="data")
            found[name] = into / name
    return found


class Classes:
    """Every class of a package, by name."""

    def __init__(self, folder: Path) -> None:
        self.known: dict[str, ast.ClassDef] = {}
        for path in sorted(folder.rglob("*.py"), key=lambda one: (len(one.parts), str(one))):
            if "test" in path.parts:
                continue
            try:
                tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.known.setdefault(node.name, node)

    def fields(self, name: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
        """Dotted fields of a class with their defaults, those of its bases first."""
        node = self.known.get(name)
        if node is None or depth > 6:
            return
        for base in node.bases:
            text = ast.unparse(base).split("[")[0].rpartition(".")[2]
            if text != name:
                yield from self.fields(text, prefix, depth)
        for line in node.body:
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)):
                continue
            kind = ast.unparse(line.annotation)
            if line.target.id.startswith("_") or "ClassVar" in kind:
                continue
            inner = [
                one for one in re.findall(r"[A-Z]\w+", kind) if one in self.known and one != name
            ]
            inner = [
                one
                for one in inner
                if any(isinstance(x, ast.AnnAssign) for x in self.known[one].body)
                or self.known[one].bases
            ]
            inner = [one for one in inner if not re.search(r"Enum|Type$|Strategy$|Literal", one)]
            if inner:
                for one in inner:
                    yield from self.fields(one, f"{prefix}{line.target.id}.", depth + 1)
            else:
                yield prefix + line.target.id, literal(line.value)


def literal(node: ast.expr | None) -> Any:
    """A default that is plain; of `field(default=...)` the one inside."""
    if isinstance(node, ast.Call):
        inner = [word.value for word in node.keywords if word.arg == "default"]
        return literal(inner[0]) if inner else None
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError):
        return None


def declared(text: str) -> Iterator[tuple[str, Any]]:
    """Options of `add_argument` calls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            default = next((literal(w.value) for w in node.keywords if w.arg == "default"), None)
            for word in node.args:
                name = literal(word)
                if isinstance(name, str) and name.startswith("--"):
                    yield name.lstrip("-").replace("-", "_"), default


def flat(table: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a tree."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def options(places: Mapping[str, Path], sources: tuple[str, ...]) -> dict[str, Any]:
    """Option -> default of one tool."""
    import yaml

    found: dict[str, Any] = {}
    for source in sources:
        package, what = source.split(" ")
        root = places.get(package)
        if root is None:
            print(f"no {package} in the folder", file=sys.stderr)
            continue
        if what[0] not in "+-=":
            found |= dict(Classes(root).fields(what))
            continue
        for path in sorted(root.rglob(what[1:].rpartition("/")[2])):
            if not path.match("*/" + what[1:]):
                continue
            text = path.read_text(encoding="utf-8")
            if what[0] == "=":
                found |= dict(flat(yaml.safe_load(text)))
            elif what[0] == "-":
                found |= dict(declared(text))
            else:
                for node in ast.parse(text).body:
                    if isinstance(node, ast.ClassDef):
                        for line in node.body:
                            if isinstance(line, ast.AnnAssign) and isinstance(
                                line.target, ast.Name
                            ):
                                found[line.target.id] = literal(line.value)
    return found


def main() -> None:
    """Print what lacks a verdict."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    with tempfile.TemporaryDirectory() as into:
        places = unpacked(Path(words[0]), Path(into))
        names = words[1:] or list(SOURCES)
        made = {tool: options(places, SOURCES[tool]) for tool in names}
    if "--json" in sys.argv:
        print(json.dumps(made, default=str))
        return
    from foretell.interop.tool_tables import may_matter, table_of

    for tool, keys in made.items():
        table = table_of(tool)
        left = [key for key in keys if "--all" in sys.argv or table.verdict(key) is None]
        for which in (True, False):
            for key in left:
                if may_matter(key) == which:
                    print(f"{tool:14s} {'?' if which else ' '} {key} = {keys[key]!r}")


if __name__ == "__main__":
    main()
