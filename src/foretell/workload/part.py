"""Operations, kept tensors and ends of one part of a layer: what all of them share is written once."""

from collections.abc import Mapping
from typing import Any, Literal

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.workload.graph import Edge, Saved
from foretell.workload.ops import Gemm, Pointwise, Split
from foretell.workload.roles import OpRole, Region, SavedRole

Fields = Mapping[str, Any]
"""Fields of an operation or a tensor by name."""
COPY: Fields = {"flop": 0.0, "back_moves": 2.0, "back_flop": 0.0}
"""A pass that puts elements into another order: nothing is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOps:
    """Makes what a part of a layer consists of, under its name and in its region."""

    name: str
    """What the names of its operations and tensors begin with."""
    region: Region = Region.NONE
    """The part of the model that they belong to."""
    rows: Num
    """Positions that its maps read."""

    def gemm(
        self,
        what: str,
        outputs: Num,
        inputs: Num,
        split: Split = "none",
        role: OpRole = OpRole.OTHER,
        **more: Any,
    ) -> Gemm:
        """A linear map of its rows; `more` are further fields of a product."""
        return Gemm(
            name=f"{self.name}.{what}", n=1.0 * outputs, k=1.0 * inputs, split=split, role=role,
            region=self.region, **{"m": self.rows, **more},
        )  # fmt: skip

    def pointwise(
        self,
        what: str,
        elements: Num,
        split: Split = "tokens",
        role: OpRole = OpRole.OTHER,
        **more: Any,
    ) -> Pointwise:
        """A pass over elements; `more` are further fields of one."""
        return Pointwise(
            name=f"{self.name}.{what}", elements=elements, split=split, role=role, region=self.region,
            **more,
        )  # fmt: skip

    def norm(
        self, what: str, elements: Num, weights: Num, split: Split = "tokens", **more: Any
    ) -> Pointwise:
        """A normalisation: some 5 operations per element forward, 8 backward."""
        work: Fields = {"flop": 5.0, "back_flop": 8.0, "weights": weights, "family": "norm", **more}
        return self.pointwise(what, elements, split, **work)

    def gate(self, what: str, elements: Num, split: Split = "width") -> Pointwise:
        """A sigmoid, times what it gates."""
        return self.pointwise(
            what, elements, split, reads=2.0, flop=4.0, back_moves=5.0, back_flop=6.0
        )

    def gated_norm(self, what: str, elements: Num, weights: Num, **more: Any) -> Pointwise:
        """A normalisation times a gate that a SiLU is taken of, inside a cut region."""
        work: Fields = {"reads": 2.0, "flop": 10.0, "back_moves": 5.0, "back_flop": 16.0, **more}
        return self.norm(what, elements, weights, "width", **work)

    def kept(
        self,
        what: str,
        elements: Num,
        role: SavedRole = SavedRole.OTHER,
        split: Literal["tokens", "width", "none"] = "width",
        **more: Any,
    ) -> Saved:
        """A tensor that is kept for the backward pass; `more` are further fields of one."""
        return Saved(
            name=f"{self.name}.{what}", elements=elements, split=split, role=role,
            region=self.region, **more,
        )  # fmt: skip

    def ends(self, entering: Num, leaving: Num) -> tuple[Edge, Edge]:
        """Elements that enter and leave the region that tensor parallelism cuts."""
        return (
            Edge(name=self.name, elements=entering, leave=False, region=self.region),
            Edge(name=self.name, elements=leaving, leave=True, region=self.region),
        )
