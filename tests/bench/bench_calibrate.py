"""The whole loop of a calibration and how far it is off. Prints; never passes or fails.

`python tests/bench/bench_calibrate.py` measures this machine for some minutes, fits it, predicts the training
steps that the fit has not seen and prints the errors. `--file FILE --chip ID` takes measurements that there
are, of another machine too.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from foretell.errors import ProblemsError
from foretell.lab.calibrate import fit, fit_file, fit_report
from foretell.training import step as estimate


def config(sizes: dict[str, int], style: str) -> dict[str, Any]:
    """A Hugging Face config of a measured model; plain ones have no positions, as here they are few."""
    if style == "gpt":
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_embd": sizes["hidden"],
            "n_inner": sizes["ffn"],
            "n_layer": sizes["layers"],
            "n_head": sizes["heads"],
            "n_positions": 1024,
            "vocab_size": sizes["vocab"],
            "tie_word_embeddings": False,
        }
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": sizes["hidden"],
        "intermediate_size": sizes["ffn"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }


def plan_of(line: dict[str, Any]) -> str:
    """The plan that a measured step ran with."""
    words = [f"mbs{line['dims']['batch']}", "fused" if line["launch"] == "compiled" else "no-fused"]
    backend = line["variant"].partition("/")[2]
    words += ["attention=fa2"] if backend == "flash" else []
    words += ["attention=cudnn"] if backend == "cudnn" else []
    if line["dtype"] == "fp32":
        words += ["weights=fp32", "master=none"]
    elif line["dtype"] == "bf16":
        words += ["gradients=bf16", "master=none", "states=bf16"]
    return " ".join(words)


def steps(found: fit.Calibration, folder: Path) -> None:
    """Predicted beside measured steps; `auto` leaves the attention library to the chip's own kernels."""
    chip = folder / "chip.toml"
    chip.write_text(fit_file.chip_toml(found))
    print(f"\n{'training step':64}{'measured':>10}{'predicted':>11}{'error':>8}{'auto':>8}")
    for line in found.measured.points:
        if line["family"] != "train_step":
            continue
        sizes, style = line["dims"], line["variant"].partition("/")[0]
        model = folder / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(config(sizes, style)))
        plan, guesses = plan_of(line), []
        auto = " ".join(word for word in plan.split() if not word.startswith("attention="))
        for words in (plan, auto):
            job = {"gpus": 1, "global_batch": sizes["batch"], "seq_len": sizes["tokens"]}
            try:
                guesses.append(estimate(model, system=chip, plan=words, **job).step_s)
            except ProblemsError as error:
                print(f"  {error}")
        if len(guesses) < 2:
            continue
        name = f"{line['variant']} {line['dtype']} {line['launch']} "
        name += " ".join(str(sizes[key]) for key in ("hidden", "layers", "batch", "tokens"))
        real = line["seconds"]
        gaps = "".join(f"{guess / real - 1.0:>+8.1%}" for guess in guesses)
        print(f"{name:64}{real * 1e3:>7.1f} ms{guesses[0] * 1e3:>8.1f} ms{gaps}")


def main() -> None:
    """Measure where no file is given, fit, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", default="")
    parser.add_argument("--chip", default="cpu")
    parser.add_argument("--minutes", default="8")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(given.file or f"{name}/points.jsonl")
        if not given.file:
            words = ["-m", "foretell.lab.calibrate.measure", "--out", str(path)]
            subprocess.run([sys.executable, *words, "--minutes", given.minutes], check=True)
        found = fit.calibrate(path, given.chip)
        print(fit_report.text(found))
        steps(found, Path(name))


if __name__ == "__main__":
    main()
