"""Texts and bytes made wrong on purpose, the same for the same seed."""

import random
import re
from collections.abc import Callable

ODD = [
    b"NaN", b"nan", b"Infinity", b"-Infinity", b"inf", b"1e400", b"-1e400", b"1e-400", b"-1", b"0", b"-0.0",
    b"0.5", b"1e308", b"9" * 400, b"9" * 5000, b"1_000", b"0x10", b"1e", b"--", b"null", b"None", b"true",
    b"false", b"[]", b"{}", b"[[[]]]", b'""', b"''", b'"', b"'", b",", b":", b"=", b"\n", b"\r\n", b"\t",
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", "🦙".encode(), "१२".encode(), "\u202e".encode(), b"../../x",
    b"/dev/null", b"${HOME}", b"$(ls)", b"<<EOF", b"&a", b"*a", b"!!python/object", b"\\", b"#", b"%s",
    b"{0}", b"tp0", b"1024", b"2147483648", b"18446744073709551616", b"1e9",
]  # fmt: skip
"""What is put where something else stood."""
DEEP, LONG = 100_000, 100_000
"""Brackets inside each other, and characters of one word."""
_TOKEN = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\"[^\"\n]{0,80}\"|[A-Za-z_][\w.-]{0,60}")

Mutation = Callable[[random.Random, bytes], bytes]


def mutated(seed: int, content: bytes) -> bytes:
    """The content after a few mutations."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        content = rng.choices(MUTATIONS, WEIGHTS)[0](rng, content)
    return content[: 4 * LONG]


def flip(rng: random.Random, content: bytes) -> bytes:
    """A few bits the other way round."""
    held = bytearray(content)
    for _ in range(min(rng.randint(1, 4), len(held))):
        held[rng.randrange(len(held))] ^= 1 << rng.randrange(8)
    return bytes(held)


def cut(rng: random.Random, content: bytes) -> bytes:
    """The beginning alone."""
    return content[: rng.randrange(len(content) + 1)]


def drop(rng: random.Random, content: bytes) -> bytes:
    """Without a piece."""
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[start + rng.randint(1, 40) :]


def insert(rng: random.Random, content: bytes) -> bytes:
    """With something odd in between."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(ODD) + content[at:]


def replace(rng: random.Random, content: bytes) -> bytes:
    """A word, number or quoted text becomes something odd."""
    found = list(_TOKEN.finditer(content[: 4 * LONG]))
    if not found:
        return insert(rng, content)
    match = rng.choice(found)
    odd = rng.choice(ODD)
    if rng.random() < 0.3:
        odd = rng.choice(found)[0]
    elif match[0].startswith(b'"') and rng.random() < 0.5:
        odd = b'"' + odd.replace(b'"', b"") + b'"'
    return content[: match.start()] + odd + content[match.end() :]


def lines(rng: random.Random, content: bytes) -> bytes:
    """A line twice, gone, or in another's place."""
    held = content.split(b"\n")
    at, other = rng.randrange(len(held)), rng.randrange(len(held))
    kind = rng.randrange(3)
    if kind == 0:
        held.insert(other, held[at])
    elif kind == 1:
        del held[at]
    else:
        held[at], held[other] = held[other], held[at]
    return b"\n".join(held)


def nest(rng: random.Random, content: bytes) -> bytes:
    """Brackets inside each other, very many or a few hundred."""
    opening, closing = rng.choice(((b"[", b"]"), (b"{", b"}"), (b"(", b")"), (b'{"a":', b"}")))
    many = rng.choice((DEEP, 900, 40))
    at = rng.randrange(len(content) + 1)
    return (
        content[:at] + opening * many + closing * (many if rng.random() < 0.5 else 0) + content[at:]
    )


def lengthen(rng: random.Random, content: bytes) -> bytes:
    """A giant word, or a piece again and again."""
    at = rng.randrange(len(content) + 1)
    piece = rng.choice(
        (b"a", b"9", b" ", b"-", b"\n", b"a=", b"$A", b'"', content[at : at + 30] or b"x")
    )
    return content[:at] + piece * (LONG // len(piece)) + content[at:]


def noise(rng: random.Random, content: bytes) -> bytes:
    """Bytes at random in the place of everything."""
    return rng.randbytes(rng.randint(0, 200))


MUTATIONS: tuple[Mutation, ...] = (flip, cut, drop, insert, replace, lines, nest, lengthen, noise)
WEIGHTS = (12, 8, 12, 14, 36, 14, 1.5, 1.5, 1)
"""How often each is drawn: most cases should be nearly right."""
