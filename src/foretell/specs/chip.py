"""One accelerator as software sees it (a GPU, a GCD, a TPU chip)."""

from collections.abc import Mapping

from foretell.records import dataclass
from foretell.specs._base import NotNegative, Positive
from foretell.specs.surface import Surface


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """Peaks are dense; bandwidths are one direction; memory is what software can allocate."""

    id: str
    """Catalogue id."""
    name: str
    """The vendor's name."""
    vendor: str
    """Who makes it."""
    architecture: str
    """Generation that kernels are written for: volta, ampere, hopper, blackwell, cdna3, tpu, ..."""
    matrix_flop_per_s: Mapping[str, Positive]
    """Dense peak of the matrix units by dtype: fp64 fp32 tf32 fp16 bf16 fp8 fp6 fp4 int8."""
    vector_flop_per_s: Positive
    """Peak of the plain fp32 units."""
    vector_fp64_flop_per_s: NotNegative = 0.0
    """Peak of the plain fp64 units; 0 where unknown."""
    memory_bytes: Positive
    """Device memory that software can allocate."""
    memory_bandwidth_bytes_per_s: Positive
    """Nominal bandwidth of the device memory."""
    l2_bytes: NotNegative = 0.0
    """L2 cache of all dies together; 0 where unknown. AMD's Infinity Cache behind it is not counted."""
    sram_bytes_per_core: NotNegative = 0.0
    """Shared memory and L1 of one core; 0 where unknown."""
    cores: NotNegative = 0.0
    """Streaming multiprocessors, compute units or cores; 0 where unknown."""
    clock_hz: NotNegative = 0.0
    """Clock at which the matrix peak holds; 0 where unknown."""
    scale_up_bytes_per_s: NotNegative = 0.0
    """All scale-up links of the chip together, one direction."""
    scale_up_link: str = ""
    """What these links are: NVLink4 (18 links), ICI, ..."""
    host_bytes_per_s: NotNegative = 0.0
    """Link to the host's memory, one direction; 0 where unknown."""
    host_speed: Positive = 1.0
    """How fast its host starts kernels, over the host of the measured machine (kernels/fusion.py)."""
    tdp_watts: Positive
    """Power limit."""
    rated_watts: NotNegative = 0.0
    """Power limit that it is sold with, by which go its watts whatever it does; 0: tdp_watts."""
    idle_watts: NotNegative = 0.0
    """Power at rest; 0 where unknown."""
    form_factor: str = ""
    """How it is mounted: SXM5, PCIe, OAM, ..."""
    process_node: str = ""
    """Manufacturing process."""
    die_area_mm2: NotNegative = 0.0
    """Area of one compute die; 0 where unknown."""
    compute_dies: NotNegative = 1.0
    """Compute dies in the package."""
    transistors: NotNegative = 0.0
    """Transistors of the package; 0 where unknown."""
    memory_type: str = ""
    """HBM3e, GDDR6, ..."""
    memory_stacks: NotNegative = 0.0
    """Memory stacks in the package; 0 where unknown."""
    package: str = ""
    """Packaging technology."""
    release_year: int = 0
    """Year of release; 0 where unknown."""
    price_usd_low: NotNegative = 0.0
    """Low end of published prices; 0 where unknown."""
    price_usd_high: NotNegative = 0.0
    """High end of published prices; 0 where unknown."""
    measured_matmul_flop_per_s: NotNegative = 0.0
    """Highest published rate of bf16 matrix multiplications; 0 where unknown."""
    left_out: tuple[str, ...] = ()
    """Chips whose measurements it must not rest on: held-out validation leaves its own out."""
    kernels: tuple[Surface, ...] = ()
    """Surfaces fitted to measurements on this very chip; none where its kernels are the catalogue's."""

    def __hash__(self) -> int:
        """A few fields tell chips apart; peaks are a mapping, which has no hash."""
        return hash(
            (self.id, self.vector_flop_per_s, self.memory_bandwidth_bytes_per_s, self.left_out)
        )
