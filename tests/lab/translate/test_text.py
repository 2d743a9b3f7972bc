"""Line-aligned text: what is read, refused, held out and put into batches."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.translate.synthetic import make_pairs
from foretell.lab.translate.text import (
    END,
    LEAST_VOCAB,
    PAD,
    SPECIAL,
    START,
    EncodedPairs,
    batches,
    encode,
    read_pairs,
    split,
    train_tokenizer,
)

LINE = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=12)
PAIRS = st.lists(st.tuples(LINE, LINE), min_size=2, max_size=30)


def files(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    paths = folder / "source.txt", folder / "target.txt"
    for path, text in zip(paths, (source, target), strict=True):
        path.write_bytes(text)
    return paths


def test_lines_are_read_side_by_side(tmp_path: Path) -> None:
    pairs = read_pairs(*files(tmp_path, b"a b\r\nc\n", "ä\nö\n".encode()))
    assert pairs == [("a b", "ä"), ("c", "ö")]
    packed = tmp_path / "source.txt.gz"
    packed.write_bytes(gzip.compress(b"a b\nc\n"))
    assert read_pairs(packed, tmp_path / "target.txt") == pairs


def test_only_line_ends_end_lines(tmp_path: Path) -> None:
    """Other separators of Unicode stand inside lines, as they do for those who aligned them."""
    text = "a\u2028b\x0bc\u0085d\n".encode()
    assert len(read_pairs(*files(tmp_path, text, b"one\n"))) == 1


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (b"a\nb\nc\n", b"a\nb\n", "2 lines where .* has 3"),
        (b"", b"a\n", "source: has no text"),
        (b"\n \n", b"a\nb\n", "source: has no text"),
        (b"a\n\xff\n", b"a\nb\n", "source: is not UTF-8 text: line 2"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, source: bytes, target: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_pairs(*files(tmp_path, source, target))


def test_both_files_problems_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_pairs(tmp_path / "no", tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["source", "target"]


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "source.gz"
    path.write_bytes(gzip.compress(b"a\n" * 100)[:-9])
    with pytest.raises(BadInput, match="cannot be read"):
        read_pairs(path, path)


@given(pairs=PAIRS, share=st.floats(0.01, 0.99), seed=st.integers(0, 9))
def test_no_pair_is_on_both_sides(pairs: list[tuple[str, str]], share: float, seed: int) -> None:
    whole = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if len(set(whole)) < 2:
        with pytest.raises(BadInput, match="distinct pairs"):
            split(pairs, share, seed)
        return
    found = split(pairs, share, seed)
    assert not set(found.train) & set(found.held_out)
    assert set(found.train) | set(found.held_out) == set(whole)
    assert found.train
    assert found.held_out
    assert found.blank == len(pairs) - len(whole)
    assert found == split(pairs, share, seed)


def test_byte_pairs_say_every_text_back() -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pairs = list(make_pairs(300))
    tokenizer = train_tokenizer(pairs, 300)
    assert tokenizer.get_vocab_size() == 300
    assert [tokenizer.token_to_id(name) for name in SPECIAL] == [PAD, START, END, 3]
    for text in ("the bat sees a fox .", "ünïcode 語", pairs[0][1]):
        assert tokenizer.decode(tokenizer.encode(text).ids).strip() == text


def test_a_vocabulary_beyond_the_text_is_refused_with_the_largest() -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pairs = [("one two three", "eins zwei drei")] * 4
    with pytest.raises(BadInput, match="too large for the text") as caught:
        train_tokenizer(pairs, 5000)
    nearest = int(str(caught.value.problems[0].nearest).split()[-1])
    assert train_tokenizer(pairs, nearest).get_vocab_size() == nearest
    with pytest.raises(BadInput, match=f"{LEAST_VOCAB} or more"):
        train_tokenizer(pairs, 100)


def test_long_lines_are_left_out_and_counted() -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    pairs = [("a " * n, "b") for n in range(1, 9)]
    tokenizer = train_tokenizer(list(make_pairs(50)), 270)
    lengths = [len(tokenizer.encode(a).ids) + 1 for a, _ in pairs]
    limit = sorted(lengths)[4]
    text = encode(tokenizer, pairs, limit, 50)
    assert len(text) == sum(n <= limit for n in lengths)
    assert text.too_long == len(pairs) - len(text)
    assert all(one[-1] == END for one in text.source)
    assert all(one[0] == START and one[-1] == END for one in text.target)


@settings(deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(2, 9)), min_size=1, max_size=40),
    size=st.integers(1, 7),
    seed=st.one_of(st.none(), st.integers(0, 5)),
)
def test_batches_hold_every_pair_once(
    lengths: list[tuple[int, int]], size: int, seed: int | None
) -> None:
    sides = [
        tuple(np.full(pair[i], n + 4, dtype=np.int32) for n, pair in enumerate(lengths))
        for i in (0, 1)
    ]
    text = EncodedPairs(source=sides[0], target=sides[1], too_long=0)
    found = list(batches(text, size, seed))
    assert all(len(batch.source) <= size for batch in found)
    seen = [int(row[0]) - 4 for batch in found for row in batch.source]
    assert sorted(seen) == list(range(len(lengths)))
    kept = sum(int((batch.target != PAD).sum()) for batch in found)
    assert kept == sum(pair[1] for pair in lengths)
    again = list(batches(text, size, seed))
    assert all((a.source == b.source).all() for a, b in zip(found, again, strict=True))


def test_made_languages_share_no_word_and_stay_the_same() -> None:
    pairs = list(make_pairs(200, seed=3, words=20))
    assert pairs == list(make_pairs(200, seed=3, words=20))
    assert pairs != list(make_pairs(200, seed=4, words=20))
    sides = [{word for pair in pairs for word in pair[i].split()} for i in (0, 1)]
    assert sides[0] & sides[1] == {"."}
    assert all(a.endswith(" .") and b.endswith(" .") for a, b in pairs)


def test_the_target_is_a_function_of_the_source() -> None:
    """A source sentence has one translation, or none could be learned fully."""
    said: dict[str, set[str]] = {}
    for source, target in make_pairs(4000, words=3):
        said.setdefault(source, set()).add(target)
    assert max(map(len, said.values())) == 1
