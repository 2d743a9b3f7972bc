"""Translating with a trained model: the likeliest token at each place (greedy)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.lab.translate import folder as files
from foretell.lab.translate.text import END, PAD, START, need_tokenizers, need_torch, pad_rows
from foretell.lab.translate.train import chosen_device, present_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Translator:
    """A model with its byte pairs, out of the folder of a run."""

    def __init__(self, folder: str | Path, *, device: str = "auto", last: bool = False) -> None:
        """The best weights, or with `last` those of the last checkpoint."""
        need_torch()
        need_tokenizers()
        from foretell import zoo

        path = Path(folder)
        settings = files.read_settings(path)
        name = files.CHECKPOINT if last else files.BEST
        if settings is None or not (path / name).exists():
            what = "has no trained model" if settings is None else f"has no {name} yet"
            raise files.bad("folder", str(path), what, "a folder of foretell translate train")
        self.device = chosen_device(device)
        self.max_source, self.max_target = settings["max_source"], settings["max_target"]
        self.tokenizer: Tokenizer = files.read_tokenizer(path)
        self.module = zoo.build(files.read_model(path), fused=True)
        weights = files.load_tensors(path / name, "cpu")
        try:
            self.module.load_state_dict(weights["module"])
        except (KeyError, RuntimeError) as error:
            raise files.bad(
                "folder", str(path / name), f"does not fit the model: {error}"
            ) from None
        self.module.to(self.device).eval()

    def translate(
        self,
        lines: Sequence[str],
        batch: int = 64,
        report: Callable[[int, int], None] | None = None,
    ) -> list[str]:
        """One line for each; blank lines stay blank. Lines over the limit are cut at it."""
        ids = [e.ids[: self.max_source - 1] for e in self.tokenizer.encode_batch(list(lines))]
        order = sorted(
            (i for i, one in enumerate(ids) if lines[i].strip()), key=lambda i: len(ids[i])
        )
        out = [""] * len(lines)
        for start in range(0, len(order), batch):
            group = order[start : start + batch]
            found = self._greedy([[*ids[i], END] for i in group])
            for i, one in zip(group, found, strict=True):
                out[i] = self.tokenizer.decode(one).strip()
            if report is not None:
                report(start + len(group), len(order))
        return out

    def _greedy(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        import torch

        source = torch.from_numpy(pad_rows(sources)).long().to(self.device)
        with torch.no_grad():
            carry = self.module.encode(source, present_of(source))
            said = torch.full((len(sources), 1), START, device=self.device)
            done = torch.zeros(len(sources), dtype=torch.bool, device=self.device)
            while not bool(done.all()) and said.shape[1] < self.max_target:
                scores: Any = self.module.decode(said, carry).scores[:, -1]
                best = scores.argmax(dim=-1).masked_fill(done, PAD)
                said = torch.cat((said, best[:, None]), dim=1)
                done = done | (best == END)
        return [[i for i in row[1:] if i not in (PAD, END)] for row in said.tolist()]


def exact_match(found: Sequence[str], wanted: Sequence[str]) -> float:
    """Share of the lines that are said exactly so."""
    right = sum(a.strip() == b.strip() for a, b in zip(found, wanted, strict=True))
    return right / max(len(wanted), 1)
