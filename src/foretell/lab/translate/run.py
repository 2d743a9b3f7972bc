"""Translating with a trained model: greedily, or with beams."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.errors import bad_input
from foretell.lab.translate import folder as files
from foretell.lab.translate.decode import beam_tokens, greedy_tokens
from foretell.lab.translate.text import END, need_tokenizers, need_torch
from foretell.lab.translate.train import chosen_device

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
            raise bad_input("folder", str(path), what, "a folder of foretell translate train")
        self.device = chosen_device(device)
        self.max_source, self.max_target = settings["max_source"], settings["max_target"]
        self.tokenizer: Tokenizer = files.read_tokenizer(path)
        self.module = zoo.build(files.read_model(path), fused=True)
        weights = files.load_tensors(path / name, "cpu")
        try:
            self.module.load_state_dict(weights["module"])
        except (KeyError, RuntimeError) as error:
            raise bad_input(
                "folder", str(path / name), f"does not fit the model: {error}"
            ) from None
        self.module.to(self.device).eval()

    def translate(
        self,
        lines: Sequence[str],
        batch: int = 64,
        report: Callable[[int, int], None] | None = None,
        *,
        beam: int = 1,
        alpha: float = 0.6,
    ) -> list[str]:
        """One line for each; blank lines stay blank. Lines over the limit are cut at it.

        One beam takes the likeliest token at each place; more are ranked with the length penalty `alpha`.
        """
        ids = [e.ids[: self.max_source - 1] for e in self.tokenizer.encode_batch(list(lines))]
        order = sorted(
            (i for i, one in enumerate(ids) if lines[i].strip()), key=lambda i: len(ids[i])
        )
        out = [""] * len(lines)
        for start in range(0, len(order), batch):
            group = order[start : start + batch]
            found = self._tokens([[*ids[i], END] for i in group], beam, alpha)
            for i, one in zip(group, found, strict=True):
                out[i] = self.tokenizer.decode(one).strip()
            if report is not None:
                report(start + len(group), len(order))
        return out

    def _tokens(self, sources: list[list[int]], beam: int, alpha: float) -> list[list[int]]:
        if beam == 1:
            return greedy_tokens(self.module, sources, self.max_target, self.device)
        return beam_tokens(
            self.module, sources, self.max_target, self.device, beam=beam, alpha=alpha
        )
