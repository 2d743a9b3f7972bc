"""From source tokens to target tokens: the likeliest at each place (greedy), or the best of several beams.

Beams are ranked by log probability over ((5 + length) / 6)^alpha (Wu et al. 2016, as the 2017 Transformer has
it: four beams, alpha 0.6): alpha 0 prefers short lines, 1 weighs every token alike.
"""

from collections.abc import Sequence
from typing import Any

from foretell.lab.translate.text import END, PAD, START, pad_rows

LENGTH_BASE = 5.0
"""Of the length penalty."""


def length_penalty(length: int, alpha: float) -> float:
    """What a line's log probability is divided by."""
    return float(((LENGTH_BASE + length) / (LENGTH_BASE + 1.0)) ** alpha)


def greedy_tokens(
    module: Any, sources: Sequence[Sequence[int]], most: int, device: str
) -> list[list[int]]:
    """The likeliest token at each place, at most so many with the start."""
    import torch

    source = torch.from_numpy(pad_rows(sources)).long().to(device)
    with torch.no_grad():
        carry = module.encode(source, _present(source))
        said = torch.full((len(sources), 1), START, device=device)
        done = torch.zeros(len(sources), dtype=torch.bool, device=device)
        while not bool(done.all()) and said.shape[1] < most:
            scores: Any = module.decode(said, carry).scores[:, -1]
            best = scores.argmax(dim=-1).masked_fill(done, PAD)
            said = torch.cat((said, best[:, None]), dim=1)
            done = done | (best == END)
    return [[i for i in row[1:] if i not in (PAD, END)] for row in said.tolist()]


def beam_tokens(
    module: Any,
    sources: Sequence[Sequence[int]],
    most: int,
    device: str,
    *,
    beam: int,
    alpha: float,
) -> list[list[int]]:
    """The best of the lines that `beam` beams end, by penalised log probability."""
    import torch

    lines = len(sources)
    rows = [row for row in sources for _ in range(beam)]
    source = torch.from_numpy(pad_rows(rows)).long().to(device)
    ended: list[list[tuple[float, list[int]]]] = [[] for _ in range(lines)]
    with torch.no_grad():
        carry = module.encode(source, _present(source))
        said = torch.full((lines * beam, 1), START, device=device)
        # At first all beams are alike: only one of each line counts.
        total = torch.full((lines, beam), -1e9, device=device)
        total[:, 0] = 0.0
        while said.shape[1] < most and not all(
            _settled(ended[i], float(total[i, 0]), said.shape[1], most, alpha, beam)
            for i in range(lines)
        ):
            scores = module.decode(said, carry).scores[:, -1].float().log_softmax(dim=-1)
            scores[:, PAD] = -1e9
            every = (total.reshape(-1, 1) + scores).reshape(lines, -1)
            top, place = every.topk(2 * beam, dim=-1)
            vocab = scores.shape[-1]
            said, total = _next_beams(said, (top, place, vocab), ended, beam, alpha)
    return [_best(ended[i], said[i * beam], float(total[i, 0]), alpha) for i in range(lines)]


def _next_beams(
    said: Any,
    found: tuple[Any, Any, int],
    ended: list[list[tuple[float, list[int]]]],
    beam: int,
    alpha: float,
) -> tuple[Any, Any]:
    """Beams that go on, and of each line those that end here."""
    import torch

    top, place, vocab = found
    rows, values = [], []
    lists, scores = place.tolist(), top.tolist()
    before = said.tolist()
    for line, (places, points) in enumerate(zip(lists, scores, strict=True)):
        kept: list[tuple[int, int, float]] = []
        for rank, (at, point) in enumerate(zip(places, points, strict=True)):
            parent, token = line * beam + at // vocab, at % vocab
            if token == END:
                if rank < beam:
                    tokens = before[parent][1:]
                    ended[line].append((point / length_penalty(len(tokens) + 1, alpha), tokens))
            elif len(kept) < beam:
                kept.append((parent, token, point))
        while len(kept) < beam:  # every likely token ends the line
            kept.append((line * beam, END, -1e9))
        rows += [[*before[parent], token] for parent, token, _ in kept]
        values.append([point for _, _, point in kept])
    return torch.tensor(rows, device=said.device), torch.tensor(values, device=said.device)


def _settled(
    ended: Sequence[tuple[float, list[int]]],
    best: float,
    length: int,
    most: int,
    alpha: float,
    beam: int,
) -> bool:
    """Whether no beam of a line can still beat the best that ended."""
    if len(ended) < beam:
        return False
    limit = best / length_penalty(most if alpha > 0.0 else length, alpha)
    return max(score for score, _ in ended) >= limit


def _best(
    ended: Sequence[tuple[float, list[int]]], going: Any, total: float, alpha: float
) -> list[int]:
    """The best line that ended, else the best beam as far as it came."""
    tokens = going.tolist()[1:]
    if ended:
        tokens = max(ended, key=lambda one: one[0])[1]
    return [token for token in tokens if token not in (PAD, END)]


def _present(source: Any) -> Any:
    present = source != PAD
    return None if bool(present.all()) else present
