"""The verbs and where they are; a verb's module is imported when the verb is used."""

from cyclopts import App

VERBS = {
    "estimate": "Time, rate and memory of one training step; the best plan where none is given.",
    "search": "Every plan ranked, best first; words of --plan are held.",
    "memory": "What every pipeline stage holds over one step, its peak and when.",
    "simulate": "One training step simulated event by event, and its trace.",
    "explain": "Where time and memory go, what bounds each share, and what would move it.",
    "compare-plans": "Why one plan beats another, leaf by leaf, and whether that is certain.",
    "improve": "What a launch of another tool would gain from other flags, and which.",
    "serve": "One deployment under one load: latencies, throughput, memory, cost, energy.",
    "size": "How many GPUs a service takes, laid out how, at what cost.",
    "fleet": "How many GPUs several models take: each on its own, or sharing chips.",
    "post-train": "One step of fine-tuning or reinforcement learning: phases, memory, placement, cost.",
    "catalog": "What is known of chips, systems and models, every number with its source.",
    "reference": "The published 2024 analytic model, exactly.",
    "network": "One collective on a system: time, bandwidths, algorithm.",
    "validate": "Measured tables beside our predictions.",
    "calibrate": "Measure your own hardware, and fit what predictions run with.",
    "sweep": "Any fields varied: a study of many points, resumable, on one core or a cluster.",
    "cost": "What chips, packages, systems, runs and tokens cost, part by part, with ranges.",
    "reproduce": "The figures and tables of a published work, by its model and by ours.",
    "scaling": "Strategies over numbers of GPUs: throughput, its parts, where it stops and why.",
    "ui": "The page and the JSON API, on this machine.",
    "mcp": "The verbs as tools of an assistant (Model Context Protocol).",
    "codesign": "Performance and cost together over architectural choices: the exact front.",
    "optimise": "Architectures searched by trial for objectives within limits, resumable.",
    "compare": "Systems ranked by cost per token, run and request, and how certain the order is.",
    "doctor": "What is installed, calibrated and reachable here, and how to get the rest.",
    "completion": "Completion for bash, zsh or fish: verbs, flags, ids of models and systems.",
    "characterize": "Real training and its traces beside the prediction.",
    "translate": "Train a translation model on two line-aligned files, and translate with it.",
    "sensitivity": "How time, cost and energy answer to every number; what if one were twice as good.",
    "diagnose": "What is wrong with a measured run or service: likely causes, and what to measure next.",
    "changed": "Which predictions moved between two versions, and by which change.",
}
"""Verbs and what they answer."""
EXAMPLES = {
    "estimate": "llama-3.1-70b --gpus 512xH100 --global-batch 1024 --seq-len 8192",
    "search": "qwen3-32b --system dgx-h200 --gpus 96 --global-batch 768 --top 5",
    "memory": "llama-3.1-70b --gpus 64xH100 --global-batch 32 --plan 'tp8 pp4 zero1 mbs1'",
    "simulate": "llama-3.1-8b --gpus 64xH100 --plan 'tp2 pp4 zero1 mbs1' --trace step.json.gz",
    "explain": "llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
    "compare-plans": "'tp8 pp4 zero1' 'tp4 pp8 zero1' llama-3.1-70b --gpus 512xH100",
    "improve": "examples/launch_megatron.sh --system h100-sxm --accept-unknown",
    "diagnose": "'tp8 pp4 zero1 mbs1: 19.5 s' --model llama-3.1-70b --gpus 512xH100 --seq-len 8192",
    "changed": "predictions-0.11.json",
    "serve": "llama-3.1-70b --gpus 8xH200 --isl 4000 --osl 500 --concurrency 64",
    "size": "qwen3-32b --system h200-sxm --rate 20 --isl 4000 --osl 500 --ttft 2000 --tpot 30",
    "fleet": "examples/fleet.toml --system h100-sxm",
    "post-train": "qwen2.5-7b --gpus 32xH100 --prompts 512 --samples 16 --osl 2000 --max-osl 8192",
    "network": "dgx-h100 --collective all-reduce --bytes 64MiB --group 16",
    "scaling": "llama-3.1-8b --system h100-sxm --gpus 8..512 --strategies 'zero1,zero3,tp4 zero1'",
    "sensitivity": "llama-3.1-70b --gpus 512xH100 --plan 'tp8 pp4 zero1 mbs1'",
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
    "Exit codes: 0 answered; 1 answered, and the answer is no; 2 bad input, nothing on standard "
    "output. --debug anywhere shows the traceback of a fault."
)


COMMANDS: dict[str, str | dict[str, tuple[str, str]]] = {
    "estimate": "estimate:estimate",
    "search": "search:search",
    "memory": "memory:memory",
    "simulate": "simulate:simulate",
    "explain": "explain:explain",
    "compare-plans": "explain:compare_plans",
    "improve": "improve:improve",
    "diagnose": "diagnose:diagnose",
    "serve": "serve:serve",
    "size": "size:size",
    "fleet": "fleet:fleet",
    "post-train": "post_train:post_train",
    "catalog": {
        "chips": ("catalog:chips", "List the chips."),
        "systems": ("catalog:systems", "List the systems."),
        "models": ("catalog:models", "List the models."),
        "show": ("catalog:show", "One entry, or a file of one's own."),
    },
    "reference": {
        "search": ("reference:search", "One published search."),
        "study": ("reference:study", "All 54 published searches."),
        "sensitivity": ("reference:sensitivity", "Its sensitivities, beside ours."),
    },
    "reproduce": "reproduce:reproduce",
    "network": "network:network",
    "validate": {
        "collectives": ("validate:collectives", "Tables of collectives."),
        "kernels": ("validate:kernels", "Tables of one-chip kernels."),
        "training": ("validate:training", "Tables of published training runs."),
        "memory": ("validate:memory", "Whether the runs of a table fit."),
        "serving": ("validate:serving", "Tables of published serving results."),
        "post-training": (
            "validate:post_training",
            "Tables of fine-tuning and reinforcement learning.",
        ),
        "cost": ("validate:cost", "Tables of die and package costs."),
    },
    "calibrate": {
        "measure": ("calibrate:measure", "Time kernels, layers and steps on this machine."),
        "fit": ("calibrate:fit", "Fit a chip's file to what was measured, for --system."),
        "runs": ("calibrate:runs", "A system's file from measured runs, for --system."),
    },
    "cost": {
        "chip": ("cost:chip", "The dies of a chip."),
        "package": ("cost:package", "A package with its dies and memory."),
        "system": ("cost:system", "A cluster: capital, years, hours, renting."),
        "run": ("cost:run", "A training run: money, energy, carbon."),
        "token": ("cost:token", "A million tokens: money, energy, carbon."),
    },
    "sweep": "sweep:verbs",
    "scaling": "scaling:scaling",
    "ui": "ui:ui",
    "mcp": "mcp:mcp",
    "codesign": "codesign:codesign",
    "optimise": "optimise:optimise",
    "compare": "compare:compare",
    "doctor": "doctor:doctor",
    "completion": "completion:completion",
    "characterize": {
        "run": ("characterize:run", "Train real models, point by point of a matrix."),
        "trace": ("traces:trace", "Break traces of training down."),
    },
    "translate": {
        "train": ("translate:train", "Train; a run that was ended goes on."),
        "run": ("translate:run", "Translate lines with a trained model."),
        "evaluate": ("translate:evaluate", "BLEU and chrF of a trained model."),
        "import-weights": (
            "translate:import_weights",
            "Take weights of the authors' TensorFlow code.",
        ),
        "make-text": ("translate:make_text", "Write text in two made-up languages with grammar."),
    },
    "sensitivity": "sensitivity:sensitivity",
    "changed": "versions:version_changes",
}
"""Module and function of each verb, below `foretell.cli`; of a verb with verbs of its own, theirs and what
they do."""


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
    for verb, place in COMMANDS.items():
        if isinstance(place, str):
            app.command(f"foretell.cli.{place}", name=verb, help=help_text(verb, VERBS[verb]))
            continue
        group = App(name=verb, help=VERBS[verb])
        for name, (function, answers) in place.items():
            words = help_text(f"{verb} {name}", answers)
            group.command(f"foretell.cli.{function}", name=name, help=words)
        app.command(group)
    return app
