"""One training step of a plan on one rank: passes in the schedule's order, messages, the update.

Every layer is differentiated by itself, so that what runs when is written down here and not in hooks: its
input is cut off from the layer before, and the gradient of that input is handed on.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.modules import LossHead, RunnerLayer, TensorCut, TokenTable, turns_of
from foretell.lab.characterize.recorder import RankGroups, RecordedMessage, Recorder
from foretell.lab.characterize.shards import FlatWeights, Update, computing
from foretell.sharding.pipeline import chunk_sizes
from foretell.specs.plan import Plan


class TensorBytes:
    """Bytes held now and at most, by the kind of piece that keeps them."""

    def __init__(self, constants: Sequence[Tensor]) -> None:
        """`constants` are there anyway: weights, inputs, tables of positions."""
        self.constants = constants
        self.now: dict[str, int] = {"table": 0, "block": 0, "head": 0}
        self.peak = dict(self.now)

    @contextmanager
    def saving(self, kind: str) -> Iterator[Callable[[Tensor], int]]:
        """Count what a piece saves; what is yielded gives the bytes, its input included."""
        found: dict[int, int] = {}
        # Read anew each time: gathered weights do not lie where they lay before.
        known = {t.untyped_storage().data_ptr() for t in self.constants}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        def counted(entry: Tensor) -> int:
            storage = entry.untyped_storage()
            if entry.requires_grad and storage.data_ptr() not in known:
                found[storage.data_ptr()] = storage.nbytes()
            size = sum(found.values())
            self.now[kind] += size
            self.peak[kind] = max(self.peak[kind], self.now[kind])
            return size

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield counted

    def freed(self, kind: str, size: int) -> None:
        """A backward pass is through."""
        self.now[kind] -= size


@dataclass(slots=True, kw_only=True)
class Piece:
    """A part of the model that is differentiated by itself."""

    name: str
    """table, block or head."""
    module: nn.Module
    """Its module."""
    flat: FlatWeights
    """Where its weights lie."""
    first: bool = False
    """Whether it is the first of its flat on the forward pass."""
    last: bool = False
    """Whether it is the last of it."""


@dataclass(slots=True)
class PieceActivations:
    """What a piece keeps of one micro-batch."""

    piece: Piece
    """The piece."""
    entry: Tensor
    """Its input, cut off from what made it."""
    leaves: Tensor | None
    """Its output with its graph; None where it is computed again."""
    kept: int = 0
    """Bytes held, where they are counted."""


class Trainer:
    """A model on one rank, and its step."""

    def __init__(self, point: JobPoint, device: str, *, overlap: bool) -> None:
        self.point, self.plan, self.device, self.overlap = point, point.plan, device, overlap
        # 32-bit products as they are, or by units that round their operands.
        torch.set_float32_matmul_precision("high" if self.plan.precision == "tf32" else "highest")
        self.recorder = Recorder(device)
        self.groups = RankGroups(self.plan, self.recorder)
        self.cut = TensorCut(self.groups)
        self.stage = self.groups.at["pp"]
        self.pieces, self.flats = self._built()
        self.update = Update(self.flats, self.plan)
        self.back = _pair_group(self.groups)
        seed = 1 + self.groups.at["dp"]
        chance = torch.Generator().manual_seed(seed)
        shape = (point.micro_batches, self.plan.micro_batch, point.seq_len)
        self.ids = torch.randint(point.sizes.vocab, shape, generator=chance).to(device)
        self.targets = torch.randint(point.sizes.vocab, shape, generator=chance).to(device)
        form = computing(self.plan)
        self.turns = turns_of(point.sizes, point.seq_len, torch.empty(0, dtype=form, device=device))
        self.kept: TensorBytes | None = None
        self.waiting: list[tuple[Any, Tensor]] = []
        self.losses: list[Tensor] = []

    # ---- the model -------------------------------------------------------------------------------

    def _built(self) -> tuple[list[Piece], list[FlatWeights]]:
        """Pieces of this stage; the table lies with the first layer's weights, the head with the last's."""
        sizes, plan = self.point.sizes, self.plan
        dealt = chunk_sizes(sizes.layers, plan.pp)
        layers, before = int(dealt[self.stage]), int(dealt[: self.stage].sum())
        units = [[("block", lambda: RunnerLayer(sizes, self.cut))] for _ in range(layers)]
        if self.stage == 0:
            units[0].insert(0, ("table", lambda: TokenTable(sizes, self.cut)))
        if self.stage == plan.pp - 1:
            units[-1].append(("head", lambda: LossHead(sizes, self.cut)))
        pieces: list[Piece] = []
        flats: list[FlatWeights] = []
        first = before + (self.stage > 0)  # the table is piece 0 of the whole model
        for some in np.array_split(np.arange(layers), self._messages(units)):
            with torch.device("meta"):
                made = [(name, make()) for i in some for name, make in units[i]]
            place = first + len(pieces)
            modules = {place + i: module for i, (_, module) in enumerate(made)}
            flat = FlatWeights(modules, self.groups, self.device)
            flats.append(flat)
            here = [Piece(name=name, module=module, flat=flat) for name, module in made]
            here[0].first, here[-1].last = True, True
            pieces += here
        return pieces, flats

    def _messages(self, units: list[Any]) -> int:
        """Into how many flats the stage's weights go: the messages that the closed form sends."""
        if self.plan.dp == 1 or self.plan.zero == 3:
            return len(units)
        from foretell.training.data_parallel import message_count

        with torch.device("meta"):
            modules = [make() for unit in units for _, make in unit]
        weights = sum(p.numel() for m in modules for p in m.parameters())
        ranks, zero = np.array([float(self.plan.dp)]), np.array([float(self.plan.zero)])
        found = message_count(ranks, zero, np.array([[float(weights)]]), np.array([[len(units)]]))
        return int(np.ceil(found[0, 0]))

    # ---- a step ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Every micro-batch forward and backward, then the update."""
        held: dict[int, list[PieceActivations]] = {}
        many = self.point.micro_batches
        for does, index in order_of(self.plan, self.stage, many):
            if does == "F":
                with self.recorder.span("forward"):
                    held[index] = self._forward(index)
            else:
                with self.recorder.span("backward"):
                    self._backward(held.pop(index), index == many - 1)
        for work, _ in self.waiting:
            work.wait()
        self.waiting = []
        for flat in self.flats:
            flat.settle()
        with self.recorder.span("optimizer"):
            self.update.run()
        if not self.overlap:
            for flat in self.flats:
                flat.need("weights")

    def _forward(self, index: int) -> list[PieceActivations]:
        x = self.ids[index] if self.stage == 0 else self._receive(forward=True)
        passed = []
        for number, piece in enumerate(self.pieces):
            if piece.first:
                piece.flat.need("weights")
                if self.overlap:
                    self._ahead(number, 1, "weights")
            again = self.plan.recompute == "full" and piece.name == "block"
            entry = x if piece.name == "table" else x.detach().requires_grad_()
            with self._counted(piece) as counted, torch.no_grad() if again else nullcontext():
                y = self._run(piece, entry, index)
            kept = counted(entry) if counted is not None else 0
            passed.append(PieceActivations(piece, entry, None if again else y, kept))
            if piece.last:
                piece.flat.release()
            x = y
        if self.stage < self.plan.pp - 1:
            self._send(x.detach(), forward=True)
        return passed

    def _run(self, piece: Piece, entry: Tensor, index: int) -> Tensor:
        if piece.name == "table":
            return piece.module(entry)
        if piece.name == "block":
            return piece.module(entry, self.turns)
        share = 1.0 / (self.point.micro_batches * self.plan.dp)
        return piece.module(entry, self.targets[index]) * share

    def _backward(self, passed: list[PieceActivations], last: bool) -> None:
        final = self.stage == self.plan.pp - 1
        if final:
            leaves = passed[-1].leaves
            assert leaves is not None
            self.losses.append(leaves.detach())
        slope = None if final else self._receive(forward=False)
        for number in reversed(range(len(passed))):
            one = passed.pop()
            piece = one.piece
            if piece.last:
                piece.flat.need("weights again")
                if self.overlap:
                    self._ahead(number, -1, "weights again")
            if one.leaves is None:
                one.leaves = self._run(piece, one.entry, 0)
            torch.autograd.backward(one.leaves, slope)
            slope = one.entry.grad if one.entry.requires_grad else None
            if self.kept is not None:
                self.kept.freed(piece.name, one.kept)
            del one
            if piece.first:
                piece.flat.collect(last, at_once=not self.overlap)
                piece.flat.release()
        if self.stage > 0:
            assert slope is not None
            self._send(slope, forward=False)

    def _ahead(self, number: int, step: int, what: str) -> None:
        """Stage 3: begin to gather the next flat's weights."""
        here, at = self.pieces[number].flat, number + step
        while 0 <= at < len(self.pieces) and self.pieces[at].flat is here:
            at += step
        if 0 <= at < len(self.pieces):
            self.pieces[at].flat.gather(what)

    @contextmanager
    def _counted(self, piece: Piece) -> Iterator[Callable[[Tensor], int] | None]:
        if self.kept is None:
            yield None
            return
        with self.kept.saving(piece.name) as counted:
            yield counted

    # ---- between stages --------------------------------------------------------------------------

    def _shape(self) -> tuple[int, int, int]:
        tokens = self.point.seq_len // self.plan.tp
        return self.plan.micro_batch, tokens, self.point.sizes.hidden

    def _message(self, kind: str, forward: bool, x: Tensor) -> RecordedMessage:
        what = "activations" if forward else "activations back"
        return RecordedMessage(axis="pipeline", what=what, kind=kind, group=2, bytes=x.nbytes)

    def _send(self, x: Tensor, *, forward: bool) -> None:
        """To the next stage, or back; without sequence parallelism every tensor-parallel rank its piece."""
        if self.plan.tp > 1 and not self.plan.sp:
            x = x.chunk(self.plan.tp, dim=1)[self.groups.at["tp"]]
        x = x.contiguous()
        target, group = self.groups.neighbour(1 if forward else -1), self.back[0 if forward else 1]
        message = self._message("send", forward, x)
        work = self.recorder.waiting(message, lambda: dist.isend(x, target, group=group))
        self.waiting.append((work, x))

    def _receive(self, *, forward: bool) -> Tensor:
        """From the stage before, or behind; the two ways have communicators of their own."""
        x = torch.empty(self._shape(), dtype=computing(self.plan), device=self.device)
        source, group = self.groups.neighbour(-1 if forward else 1), self.back[0 if forward else 1]
        message = self._message("receive", forward, x)
        self.recorder.waiting(message, lambda: dist.recv(x, source, group=group))
        if self.plan.tp > 1 and not self.plan.sp:
            x = self._joined(x, "activations" if forward else "activations back")
        return x

    def _joined(self, x: Tensor, what: str) -> Tensor:
        """The pieces of all tensor-parallel ranks, counted as the pipeline's."""
        part = x.transpose(0, 1).contiguous()
        whole = part.new_empty((part.shape[0] * self.plan.tp, *part.shape[1:]))
        message = self.groups.all_gather("tp", what, part, whole)
        message.axis = "pipeline"
        self.groups.wait(message)
        return whole.transpose(0, 1).contiguous()

    # ---- what is told ----------------------------------------------------------------------------

    def step_losses(self) -> list[float]:
        """Mean loss of each step over this replica's micro-batches; none but on the last stage."""
        many = self.point.micro_batches
        shares = [float(loss) * self.plan.dp for loss in self.losses]
        return [sum(shares[i : i + many]) for i in range(0, len(shares), many)]

    def count_step(self) -> dict[str, float]:
        """One step in which everything that is kept for the backward passes is counted."""
        constants = [*self.turns, self.ids, self.targets, *(f.whole for f in self.flats)]
        self.kept = TensorBytes(constants)
        self.step()
        found = {
            "activations": float(self.kept.peak["block"]),
            "head": float(self.kept.peak["head"]),
        }
        self.kept = None
        for name in ("weights", "gradients", "states"):
            found[name] = float(sum(flat.held()[name] for flat in self.flats))
        found["states"] += self.update.state_bytes()
        return found

    def close(self) -> None:
        """Give groups back; messages on their way are waited for."""
        for flat in self.flats:
            if flat.arriving is not None:
                self.groups.wait(flat.arriving)
        self.recorder.close()
        self.groups.close()
        for group in {id(g): g for g in self.back if g is not None}.values():
            dist.destroy_process_group(group)


def order_of(plan: Plan, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    """Forward and backward passes of one stage, in order (schedules/)."""
    if plan.pp == 1:
        return [(does, i) for i in range(micro_batches) for does in ("F", "D")]
    from foretell.schedules import schedule_named

    tasks = schedule_named(plan.schedule).tasks(stage, plan.pp, 1, micro_batches)
    return [(task.does, task.micro_batch) for task in tasks]


def _pair_group(groups: RankGroups) -> tuple[Any, Any]:
    """Communicators for sends onward and back: on one, each would wait behind the other."""
    if groups.plan.pp == 1:
        return None, None
    every = list(range(groups.plan.gpus))
    return dist.new_group(every), dist.new_group(every)


def attention_context(plan: Plan, device: str) -> Any:
    """Attention by the library that the plan names; a CPU has one."""
    if device == "cpu":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    if not plan.flash:
        return sdpa_kernel(SDPBackend.MATH)
    if computing(plan) == torch.float32:
        # Of the fused ones the only one for 32 bits; it knows no shared keys.
        return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return sdpa_kernel(names[plan.attention]) if plan.attention in names else nullcontext()
