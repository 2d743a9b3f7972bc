"""`foretell serve`, `size`, `fleet` and `post-train`: services, their size, and steps that generate."""

from typing import Any

from foretell.cli.answering import VerbAnswer, respond
from foretell.cli.command import Edges, Given, command
from foretell.cli.exchange import imported, imported_step
from foretell.errors import BadInput, bad_input, unknown
from foretell.specs.questions.post_training import PostTrainingQuestion
from foretell.specs.questions.serving import ServingQuestion
from foretell.specs.questions.sizing import FleetQuestion, SizeQuestion


@command(ServingQuestion)
def serve(given: Given, edges: Edges) -> int:
    """TTFT, TPOT, throughput, memory, cost, energy of one deployment; the best layout where none is given."""
    from foretell.api.serving import serve as ask
    from foretell.serving.traced_passes import SampledService

    def export(found: Any, asked: Any, folder: str | None) -> Any:
        if isinstance(found, SampledService):
            return None
        from foretell.api.serving_commands import launch_command

        engine = str(edges.export) if folder is None else found.profile.partition("-")[0]
        question = ServingQuestion(**asked)
        written = launch_command(engine, found, question, edges.launcher, asked.launch)
        if folder is None:
            return written
        from foretell.api.bundles import serving_bundle

        return serving_bundle(found, written, folder)

    def too_slow(found: Any) -> int:
        if isinstance(found, SampledService):
            return 0
        grows = found.simulation is not None and found.simulation["queue_grows"]
        return int(grows or (found.offline is not None and not found.offline["in_time"]))

    how = VerbAnswer(
        ask=ask, counted="requests", export=export, serving=True, code=too_slow,
        read=lambda given, edges: imported(given, edges, serving=True),
        figure=lambda found: None if isinstance(found, SampledService) else found.to_dict(),
    )  # fmt: skip
    return respond("serve", how, given, edges)


@command(SizeQuestion)
def size(given: Given, edges: Edges) -> int:
    """How many GPUs a service needs, in which layout, at what cost; --pareto adds the front."""
    from foretell.api.size import size as ask

    def export(found: Any, asked: Any, folder: str | None) -> Any:
        if folder is None:
            return found.export(edges.export, edges.launcher)
        from foretell.api.bundles import sizing_bundle

        return sizing_bundle(found, folder)

    how = VerbAnswer(
        ask=ask, export=export, serving=True, shown={"with_front": edges.pareto},
        code=lambda found: 0 if found.best.meets else 1,
    )  # fmt: skip
    return respond("size", how, given, edges)


@command(FleetQuestion)
def fleet(given: Given, edges: Edges) -> int:
    """How many GPUs several models take: each on its own, and where sharing chips saves some."""
    from foretell.api.fleet import fleet as ask

    how = VerbAnswer(ask=ask, code=lambda found: 0 if found.fits else 1)
    return respond("fleet", how, given, edges)


TOOLS = ("verl", "nemo-rl", "trl")
"""Frameworks that a post-training configuration is written for."""


@command(PostTrainingQuestion)
def post_train(given: Given, edges: Edges) -> int:
    """A step of fine-tuning or reinforcement learning: phases, memory by phase, placement, cost."""
    from foretell.api.post_training import post_train as ask
    from foretell.specs.post_training import ALGORITHMS

    if edges.export is not None and edges.export not in TOOLS:
        raise BadInput([unknown("--export", edges.export, TOOLS)])
    if "algorithm" not in given and edges.import_ is None:
        raise bad_input("--algorithm", None, "which one?", ", ".join(ALGORITHMS))
    how = VerbAnswer(
        ask=ask, read=imported_step, export=lambda found, asked, folder: found.export(edges.export),
        code=lambda found: 1 if found.fits == "no" else 0,
    )  # fmt: skip
    return respond("post-train", how, given, edges)
