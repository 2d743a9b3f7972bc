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
    "diagnose": "What is wrong with a measured run: likely causes, and what to measure next.",
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


def help_text(verb: str, answers: str = "") -> str:
    """What a verb answers, with an example; lists of verbs show the first line alone."""
    return f"{answers or VERBS[verb]}\n\nFor example: foretell {verb} {EXAMPLES[verb]}"


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
    app.command("foretell.cli.estimate:estimate", help=help_text("estimate"))
    app.command("foretell.cli.search:search", help=help_text("search"))
    app.command("foretell.cli.memory:memory", help=help_text("memory"))
    app.command("foretell.cli.simulate:simulate", help=help_text("simulate"))
    app.command("foretell.cli.explain:explain", help=help_text("explain"))
    app.command(
        "foretell.cli.explain:compare_plans", name="compare-plans", help=help_text("compare-plans")
    )
    app.command("foretell.cli.improve:improve", help=help_text("improve"))
    app.command("foretell.cli.diagnose:diagnose", help=help_text("diagnose"))
    app.command("foretell.cli.serve:serve", help=help_text("serve"))
    app.command("foretell.cli.size:size", help=help_text("size"))
    app.command("foretell.cli.fleet:fleet", help=help_text("fleet"))
    app.command(
        "foretell.cli.post_train:post_train", name="post-train", help=help_text("post-train")
    )
    catalog = App(name="catalog", help=VERBS["catalog"])
    for kind in ("chips", "systems", "models"):
        catalog.command(f"foretell.cli.catalog:{kind}", help=f"List the {kind}.")
    catalog.command(
        "foretell.cli.catalog:show",
        help=help_text("catalog show", "One entry, or a file of one's own."),
    )
    app.command(catalog)
    reference = App(name="reference", help=VERBS["reference"])
    reference.command(
        "foretell.cli.reference:search", help=help_text("reference search", "One published search.")
    )
    reference.command("foretell.cli.reference:study", help="All 54 published searches.")
    reference.command("foretell.cli.reference:sensitivity", help="Its sensitivities, beside ours.")
    app.command(reference)
    app.command("foretell.cli.reproduce:reproduce", help=help_text("reproduce"))
    app.command("foretell.cli.network:network", help=help_text("network"))
    validate = App(name="validate", help=VERBS["validate"])
    validate.command("foretell.cli.validate:collectives", help="Tables of collectives.")
    validate.command("foretell.cli.validate:kernels", help="Tables of one-chip kernels.")
    validate.command("foretell.cli.validate:training", help="Tables of published training runs.")
    validate.command("foretell.cli.validate:memory", help="Whether the runs of a table fit.")
    validate.command("foretell.cli.validate:serving", help="Tables of published serving results.")
    validate.command(
        "foretell.cli.validate:post_training",
        name="post-training",
        help="Tables of fine-tuning and reinforcement learning.",
    )
    validate.command("foretell.cli.validate:cost", help="Tables of die and package costs.")
    app.command(validate)
    calibrate = App(name="calibrate", help=VERBS["calibrate"])
    calibrate.command(
        "foretell.cli.calibrate:measure",
        help=help_text("calibrate measure", "Time kernels, layers and steps on this machine."),
    )
    calibrate.command(
        "foretell.cli.calibrate:fit",
        help=help_text("calibrate fit", "Fit a chip's file to what was measured, for --system."),
    )
    calibrate.command(
        "foretell.cli.calibrate:runs",
        help=help_text("calibrate runs", "A system's file from measured runs, for --system."),
    )
    app.command(calibrate)
    cost = App(name="cost", help=VERBS["cost"])
    cost.command("foretell.cli.cost:chip", help=help_text("cost chip", "The dies of a chip."))
    cost.command(
        "foretell.cli.cost:package",
        help=help_text("cost package", "A package with its dies and memory."),
    )
    cost.command(
        "foretell.cli.cost:system",
        help=help_text("cost system", "A cluster: capital, years, hours, renting."),
    )
    cost.command(
        "foretell.cli.cost:run",
        help=help_text("cost run", "A training run: money, energy, carbon."),
    )
    cost.command(
        "foretell.cli.cost:token",
        help=help_text("cost token", "A million tokens: money, energy, carbon."),
    )
    app.command(cost)
    app.command("foretell.cli.sweep:verbs", name="sweep", help=help_text("sweep"))
    app.command("foretell.cli.scaling:scaling", help=help_text("scaling"))
    app.command("foretell.cli.ui:ui", help=VERBS["ui"])
    app.command("foretell.cli.mcp:mcp", help=VERBS["mcp"])
    app.command("foretell.cli.codesign:codesign", help=help_text("codesign"))
    app.command("foretell.cli.optimise:optimise", help=help_text("optimise"))
    app.command("foretell.cli.compare:compare", help=help_text("compare"))
    app.command("foretell.cli.doctor:doctor", help=VERBS["doctor"])
    app.command("foretell.cli.completion:completion", help=VERBS["completion"])
    characterize = App(name="characterize", help=VERBS["characterize"])
    characterize.command(
        "foretell.cli.characterize:run",
        help=help_text("characterize run", "Train real models, point by point of a matrix."),
    )
    characterize.command(
        "foretell.cli.traces:trace",
        help=help_text("characterize trace", "Break traces of training down."),
    )
    app.command(characterize)
    translate = App(name="translate", help=VERBS["translate"])
    translate.command(
        "foretell.cli.translate:train",
        help=help_text("translate train", "Train; a run that was ended goes on."),
    )
    translate.command(
        "foretell.cli.translate:run",
        help=help_text("translate run", "Translate lines with a trained model."),
    )
    translate.command(
        "foretell.cli.translate:evaluate",
        help=help_text("translate evaluate", "BLEU and chrF of a trained model."),
    )
    translate.command(
        "foretell.cli.translate:import_weights",
        name="import-weights",
        help="Take weights of the authors' TensorFlow code.",
    )
    translate.command(
        "foretell.cli.translate:make_text",
        name="make-text",
        help="Write text in two made-up languages with grammar.",
    )
    app.command(translate)
    app.command("foretell.cli.sensitivity:sensitivity", help=help_text("sensitivity"))
    app.command("foretell.cli.versions:version_changes", name="changed", help=help_text("changed"))
    return app
