"""The verbs, by what people want, and where they are; a verb's module is imported when the verb is used."""

from typing import Any

from cyclopts import App, Group

GROUPS = {
    "Train": "estimate search explain memory simulate compare-plans scaling sensitivity trace",
    "Serve": "serve size fleet",
    "Tune": "post-train",
    "Buy": "buy compare cost",
    "Launch files": "improve",
    "Measure": "diagnose network",
    "Research": "trace sweep codesign optimise lab",
    "This installation": "catalog ui mcp doctor completion",
}
"""Verbs by what people want of them, everyday ones first."""
LAB = "validate calibrate characterize reference reproduce translate changed"
"""Verbs under `foretell lab`, which work without it too."""

VERBS = {
    "estimate": "Time, memory and energy of one training step, and of a run.",
    "search": "Every plan ranked, best first.",
    "memory": "What every pipeline stage holds over one step, and when.",
    "simulate": "One training step event by event, and its trace.",
    "explain": "Where time and memory go, and what would move them.",
    "compare-plans": "Why one plan beats another, and how certain that is.",
    "improve": "What a launch file would gain from other flags, and which.",
    "serve": "One deployment under one load: latency, throughput, cost.",
    "size": "How many GPUs a service takes, and at what cost.",
    "fleet": "How many GPUs several models take together.",
    "post-train": "One step of fine-tuning or RL: phases, memory, cost.",
    "lab": "Score, calibrate, characterize, reproduce, translate.",
    "catalog": "Chips, systems and models, every number with its source.",
    "reference": "The published 2024 analytic model, exactly.",
    "network": "One collective on a system: time, bandwidth, algorithm.",
    "validate": "Measured tables beside our predictions.",
    "calibrate": "Measure your own hardware, and fit what predictions run with.",
    "sweep": "Any fields varied: a resumable study of many points.",
    "cost": "What chips, packages, systems, runs and tokens cost.",
    "reproduce": "The figures and tables of a published work, by its model and by ours.",
    "scaling": "Strategies over numbers of GPUs, and where each stops.",
    "ui": "The page and the JSON API, on this machine.",
    "mcp": "The verbs as tools of an assistant (MCP).",
    "codesign": "Performance and cost over architectural choices.",
    "optimise": "Architectures searched by trial within limits.",
    "buy": "What to get for a budget and a deadline, and how sure.",
    "compare": "Systems ranked by cost per token, run and request.",
    "doctor": "What is installed here, and how to get the rest.",
    "completion": "Completion for bash, zsh or fish.",
    "characterize": "Real training and its traces beside the prediction.",
    "translate": "Train a translation model on two line-aligned files, and translate with it.",
    "sensitivity": "How the answer moves with every number of the system.",
    "diagnose": "What is wrong with a measured run or service.",
    "changed": "Which predictions moved between two versions, and by which change.",
    "trace": "A PyTorch module as a model: traced without weights or GPU, saved for every verb.",
}
"""Verbs and what they answer."""
EXAMPLES = {
    "estimate": "llama-3.1-70b --gpus 512xH100 --global-batch 1024 --seq-len 8192",
    "search": "qwen3-32b --system dgx-h200 --gpus 96 --global-batch 768 --top 5",
    "memory": "llama-3.1-70b --gpus 64xH100 --global-batch 32 --plan 'tp8 pp4 zero1 mbs1'",
    "simulate": "llama-3.1-8b --gpus 64xH100 --plan 'tp2 pp4 zero1 mbs1' --trace step.json.gz",
    "explain": "llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
    "compare-plans": "llama-3.1-70b 'tp8 pp4 zero1' 'tp4 pp8 zero1' --gpus 512xH100",
    "improve": "examples/launch_megatron.sh --system h100-sxm --accept-unknown",
    "diagnose": "'tp8 pp4 zero1 mbs1: 19.5 s' --model llama-3.1-70b --gpus 512xH100 --seq-len 8192",
    "changed": "predictions-0.11.json",
    "trace": "my_model.py:build --inputs 'ids:int64[4,2048]' --loss sum --save my.foretell.json",
    "serve": "llama-3.1-70b --gpus 8xH200 --isl 4000 --osl 500 --concurrency 64",
    "size": "qwen3-32b --system h200-sxm --rate 20 --isl 4000 --osl 500 --ttft 2000 --tpot 30",
    "fleet": "examples/fleet.toml --system h100-sxm",
    "post-train": "qwen2.5-7b --algorithm grpo --gpus 32xH100 --samples 16 --osl 2000",
    "network": "dgx-h100 --collective all-reduce --bytes 64MiB --group 16",
    "scaling": "llama-3.1-8b --system h100-sxm --gpus 8..512 --strategies 'zero1,zero3,tp4 zero1'",
    "sensitivity": "llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
    "buy": "llama-3.1-70b --budget 10M --tokens 2T --deadline 90days --report buy.html",
    "compare": "hgx-h100 dgx-b200 --model llama-3.1-70b --budget 10M --seq-len 8192",
    "codesign": "examples/codesign_small.toml",
    "optimise": "examples/codesign_small.toml --trials 50",
    "sweep": "examples/sweep_small.toml --out results",
    "catalog show": "h100-sxm",
    "reference search": "--model gpt3-1t --strategy 1d --chip b200 --fast-domain 8 --gpus 1024",
    "reproduce": "nersc-2024 --out nersc-2024",
    "calibrate measure": "--out mine.jsonl --minutes 8",
    "calibrate fit": "mine.jsonl --chip my-gpu --out mine.toml",
    "calibrate runs": "runs.csv --model llama-3.1-70b --system h100-sxm --out my-cluster.toml",
    "cost chip": "--node N5 --area 800",
    "cost package": "h100-sxm",
    "cost system": "hgx-h100 --gpus 1024",
    "cost run": "llama-3.1-8b --gpus 64xH100 --tokens 1T --rent own --region iowa",
    "cost token": "llama-3.1-8b --gpus 1xH100 --isl 2000 --osl 300 --concurrency 32",
    "sweep export": "results --out results.csv",
    "sweep plot": "results --out results.html",
    "characterize run": "examples/characterize_small.toml --dry-run",
    "characterize trace": "rank0.json.gz rank1.json.gz --model llama-3.1-8b --gpus 2xH200",
    "translate train": "--source text.en --target text.de --out run --steps 1000",
    "translate run": "run --file text.en",
    "translate evaluate": "run --source test.en --target test.de --beam 4",
}
"""One question of each verb, as it is typed, but of those that their flags alone explain."""
EPILOGUE = (
    "--help-all shows every flag. Exit codes: 0 answered; 1 answered, and the answer is no; 2 bad "
    "input, nothing on standard output; 70 a fault of foretell, whose traceback --debug shows; 74 the "
    "answer could not be written."
)


MODULES = {
    "training": "estimate search memory simulate explain compare-plans improve network trace",
    "serving": "serve size fleet post-train",
    "money": "buy compare cost",
    "studies": "sweep scaling codesign optimise sensitivity",
    "measurements": "diagnose calibrate characterize",
    "installation": "catalog ui mcp doctor completion",
    "research": "reference reproduce changed",
    "validate": "validate",
    "translate": "translate",
}
"""Module below `foretell.cli` -> its verbs."""
FUNCTIONS = {"sweep": "verbs", "changed": "version_changes"}
"""Functions of verbs that are not called as the verb is."""
INNER: dict[str, dict[str, str]] = {
    "catalog": {
        "chips": "List the chips.",
        "systems": "List the systems.",
        "models": "List the models.",
        "show": "One entry, or a file of one's own.",
    },
    "reference": {"search": "One published search.", "study": "All 54 published searches."},
    "validate": {
        "collectives": "Tables of collectives.",
        "kernels": "Tables of one-chip kernels.",
        "training": "Tables of published training runs.",
        "memory": "Whether the runs of a table fit.",
        "serving": "Tables of published serving results.",
        "post-training": "Tables of fine-tuning and reinforcement learning.",
        "famous": "Famous runs by the command a user would type.",
        "cost": "Tables of die and package costs.",
    },
    "calibrate": {
        "measure": "Time kernels, layers and steps on this machine.",
        "fit": "Fit a chip's file to what was measured, for --system.",
        "runs": "A system's file from measured runs, for --system.",
    },
    "cost": {
        "chip": "The dies of a chip.",
        "package": "A package with its dies and memory.",
        "system": "A cluster: capital, years, hours, renting.",
        "run": "A training run: money, energy, carbon.",
        "token": "A million tokens: money, energy, carbon.",
    },
    "characterize": {
        "run": "Train real models, point by point of a matrix.",
        "trace": "Break traces of training down.",
    },
    "translate": {
        "train": "Train; a run that was ended goes on.",
        "run": "Translate lines with a trained model.",
        "evaluate": "BLEU and chrF of a trained model.",
        "import-weights": "Take weights of the authors' TensorFlow code.",
        "make-text": "Write text in two made-up languages with grammar.",
    },
}
"""Verbs that have verbs of their own, which are functions of the module, and what these do."""


def help_text(verb: str, answers: str) -> str:
    """What a verb answers, with an example where there is one; lists of verbs show the first line alone."""
    example = EXAMPLES.get(verb)
    return answers if example is None else f"{answers}\n\nFor example: foretell {verb} {example}"


def make_app() -> App:
    """The whole command line."""
    from foretell import __version__

    app = App(
        name="foretell",
        help="How long a transformer takes to train or serve on a system, whether it fits, what it costs.",
        help_epilogue=EPILOGUE,
        version=f"foretell {__version__}",
        suppress_keyboard_interrupt=False,
        help_format="plaintext",  # a reader of Markdown takes a sixth of the time that help may
    )
    groups = {
        verb: group
        for at, (name, verbs) in enumerate(GROUPS.items())
        for group in (Group(name, sort_key=at),)
        for verb in verbs.split()
    }
    order = list(groups)
    lab = App(name="lab", help=VERBS["lab"], group=groups["lab"], sort_key=len(order))
    for module, verbs in MODULES.items():
        for verb in verbs.split():
            if verb in LAB.split():
                _add(lab, module, verb)
                _add(app, module, verb, show=False)
            else:
                _add(app, module, verb, group=groups[verb], sort_key=order.index(verb))
    app.command(lab)
    return app


def _add(app: App, module: str, verb: str, **about: Any) -> None:
    """A verb, with verbs of its own where it has such."""
    if verb not in INNER:
        place = _place(module, FUNCTIONS.get(verb, verb))
        app.command(place, name=verb, help=help_text(verb, VERBS[verb]), **about)
        return
    inner = App(name=verb, help=VERBS[verb], **about)
    for name, answers in INNER[verb].items():
        inner.command(_place(module, name), name=name, help=help_text(f"{verb} {name}", answers))
    app.command(inner)


def _place(module: str, name: str) -> str:
    """Module and function of a verb, loaded when it is used."""
    return f"foretell.cli.{module}:{name.replace('-', '_')}"
