"""The scaling study of Cheng et al. (SIGMETRICS 2024, POMACS 8(1) article 8), predicted.

Data parallelism with three ways of sharing for six sizes of model up to 512 chips on a system with little
bandwidth between its nodes (Polaris on Slingshot-10), and three model-parallel combinations on systems with
much and with little. The paper's abstract has this scope; its sizes of models and recipes are not at hand, so
that those here are ours: OPT's six sizes up to 13B, sequences of 2,048 tokens, layers computed again.
"""

from foretell.records import as_json, dataclass
from foretell.studies.scaling.published import PublishedFigure, compare_published
from foretell.studies.scaling.records import Scaling
from foretell.studies.scaling.run import scaling

SIZES = ("opt-125m", "opt-350m", "opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b")
"""Six sizes that grow by factors of two to four: those of the GPT-3 paper, with widths that divide."""
LOW = "polaris-ss10"
"""A system with little bandwidth: 25 GB/s of ports for four chips, of which 9.8 are reached."""
SYSTEMS = ("thetagpu-sophia", "perlmutter", "polaris-ss11", "polaris-ss10")
"""The most bandwidth between nodes first: 178, 70, 36 and 9.8 GB/s of bus bandwidth as measured."""
COMBINATIONS = ("tp8 zero1", "tp4 pp2 zero1", "pp8 zero1")
"""Three ways to lay a model over eight chips; eight are one node of ThetaGPU and two of the others."""
WORDS = "gradients=bf16 recompute=full"
"""What all plans share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """The whole study."""

    data_parallel: Scaling
    """Six sizes, three ways of sharing, 1 to 512 chips."""
    model_parallel: tuple[Scaling, ...]
    """Three combinations on 8 to 128 chips of each system."""
    measured: tuple[PublishedFigure, ...]
    """Open measurements and our predictions of them."""

    to_dict = as_json()


def study() -> ScalingStudy:
    """Evaluate it: some three hundred points."""
    return ScalingStudy(
        data_parallel=scaling(
            *SIZES, system=LOW, gpus="1..512", plan=WORDS, micro_batch=4, seq_len=2048
        ),
        model_parallel=tuple(
            scaling(
                SIZES[-1],
                system=system,
                gpus="8..128",
                strategies=COMBINATIONS,
                plan=WORDS,
                micro_batch=1,
                batch_per_gpu=4,
                seq_len=2048,
            )
            for system in SYSTEMS
        ),
        measured=compare_published(),
    )
