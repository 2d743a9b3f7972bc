"""Words that Foretell does not use, where they are allowed all the same, and every text that users read."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "foretell"


@dataclass(frozen=True)
class Phrase:
    """Words, what to write instead, and where they are right."""

    words: str
    """A regular expression."""
    instead: str
    """The field's own word."""
    allowed: str = ""
    """A regular expression of contexts, on the line, in which the words are right; empty: nowhere."""


PHRASES = (
    Phrase(r"\b(?:re)?played\b|\bplays? (?:of )?(?:requests|the best|a step)\b", "simulated"),
    Phrase(
        r"\bin flight\b", "concurrency (requests); in flight is for micro-batches",
        r"micro-batch|chunk|activations in flight|in flight x kept|what is in flight",
    ),
    Phrase(r"\bfor (?:prompts|answers)\b", "prefill, decode"),
    Phrase(
        r"\bservice levels?\b|\b(?:keep|keeps|meet|meets) (?:the|its|these|both) levels\b"
        r"|\bwithin (?:the|its|their) levels\b|\bboth levels\b",
        "SLO, latency targets",
    ),
    Phrase(
        r"\bmemory (?:that is |is )?lost\b|\blost memory\b|\blost (?:to|in) the allocator\b",
        "fragmentation",
    ),
    Phrase(r"\bplain units\b", "vector units"),
    Phrase(
        r"\bexchanges\b|\b(?:an|each|every|kind of|expert|direct) exchange\b", "communication",
        r"exchanges? (?:heads|with a partner)",
    ),
    Phrase(
        r"\bproducts?\b", "matrix multiplications, GEMMs",
        r"(?i)(?:cross|kronecker|inner|dot|outer|cartesian) products?|(?:sum|row|sums) of products?"
        r"|whose product|products? of (?:a row|their|small|degrees|the|sizes)|by the product"
        r"|\bproduct or sample|[`\"'+|]products?[`\"'+|,]|mode: `product|, or products \(by op"
        r"|y\[m, ?n\]|matrix products? [a-zA-Z] ?=|full, or products|their product the size"
        r"|products\.toml|sells|sold|of a maker|\bproduct names?\b|moe\+products|norm\+moe",
    ),
    Phrase(r"\bturned away\b", "skipped as invalid"),
    Phrase(r"\btoo close to call\b", "borderline"),
    Phrase(r"\b[Tt]ake it along\b", "Export"),
    Phrase(r"\bleft out\b", "held out (validation), omitted, skipped", r"^left out$"),
    Phrase(r"\bblind\b", "held out", r"colou?r-?blind"),
    Phrase(
        r"\btold\b|\bsaid\b|\bstands?\b|\bwears\b", "reported, stated, is, has",
        r"\bstand-in|\bstands? out\b|\bunderstand|told\.|told =|told \+=|\{told\}|\btold\(|standing"
        r"|said quiet|\$\{said",
    ),
    Phrase(r"\bThe same where\b", "state the whole thing, or merge the functions"),
    Phrase(r"What is not shared between the first two", "Main uncertainties in this ranking"),
    Phrase(r"nine cases of ten: that is certain enough", "Ranked first in at least 90 % of draws"),
    Phrase(r"are yours to give", "Add the model flags (--num-layers ...)"),
    Phrase(r"before anyone pays for it", "before you rent the GPUs"),
)  # fmt: skip
"""VOICE's left column."""
HISTORY = ("docs/decisions.md",)
"""Pages that record what was decided, in the words of their day."""
NOT_TEXT = ("lab/calibrate/power", "lab/calibrate/kernel_fit",
            "testing/", "report/figures/files.py", "lab/calibrate/measure/worker.py")  # fmt: skip
"""Modules whose strings are notes of fits in the catalogue, code, or messages for authors of plug-ins."""


TITLE = re.compile(r"[A-Z][a-z]{3,}:?")
"""A string of one word that is a heading or a label."""


@dataclass(frozen=True)
class Line:
    """A line that a user may read."""

    where: str
    """File and line."""
    text: str
    """What it says."""


def found(lines: Iterator[Line], phrases: tuple[Phrase, ...] = PHRASES) -> list[str]:
    """Every use of a phrase outside of its contexts."""
    return [
        f"{line.where}: {match[0]!r} -> {phrase.instead}: {line.text.strip()[:120]}"
        for line in lines
        for phrase in phrases
        for match in re.finditer(phrase.words, line.text, re.IGNORECASE)
        if not (
            phrase.allowed and re.search(phrase.allowed, _around(line.text, match), re.IGNORECASE)
        )
    ]


def _around(text: str, match: "re.Match[str]") -> str:
    """The words on both sides of a match: its context."""
    return text[max(match.start() - 60, 0) : match.end() + 60]


def pages() -> Iterator[Line]:
    """README and docs, without code: Python, paths of files and links are names, not prose."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        name = path.relative_to(ROOT).as_posix()
        if name in HISTORY:
            continue
        fence = ""
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if text.startswith("```"):
                fence = "" if fence else text[3:].split(" ")[0] or "text"
            elif fence not in ("python", "toml", "json", "bash", "yaml"):
                words = re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", " ` ", text) if not fence else text
                yield Line(f"{name}:{number}", words)


def messages() -> Iterator[Line]:
    """Strings of the source that are no docstrings, with several words or as a heading: messages, help."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(NOT_TEXT):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = set(map(id, _docstrings(tree)))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and (" " in node.value.strip() or TITLE.fullmatch(node.value))
                and id(node) not in documented
            ):
                yield Line(f"{name}:{node.lineno}", node.value)


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Texts that stand alone in a module, a class or a function."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, kinds) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                yield one.value


DOCSTRINGS = tuple(
    replace(
        one,
        allowed="|".join(
            filter(None, (one.allowed, r"stands? (?:for|in for|still|idle)\b|replayed"))
        ),
    )
    for one in PHRASES
    if re.search(r"told|played|turned away|The same where", one.words)
)
"""What docstrings do not say either; matrix products and exchanges are words of their formulas."""
TELLS = ("studies/sweep/trials.py", "studies/sweep/optimise.py", "serving/requests/")
"""Modules about what is told to somebody: trials are asked for and told, users of a chat say something."""


def docstrings() -> Iterator[Line]:
    """Lines of the docstrings of the source, without code."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(TELLS):
            for one in _docstrings(ast.parse(path.read_text(encoding="utf-8"))):
                for at, text in enumerate(str(one.value).splitlines()):
                    yield Line(f"{name}:{one.lineno + at}", re.sub(r"`[^`]*`", "`", text))


def commands() -> Iterator[Line]:
    """First lines of the docstrings of commands, which their help shows."""
    for path in sorted((SOURCE / "cli").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield Line(
                    f"cli/{path.name}:{node.lineno}",
                    (ast.get_docstring(node) or "").partition("\n")[0],
                )


def page_texts() -> Iterator[Line]:
    """Strings and text of the web page: quoted texts of more than one word, and what HTML shows."""
    for path in sorted((SOURCE / "web" / "static").rglob("*")):
        if path.suffix not in (".js", ".html") or "vendor" in path.parts:
            continue
        name = path.relative_to(SOURCE).as_posix()
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            shown = re.sub(r"<[^>]*>", " ", text) if path.suffix == ".html" else " ".join(
                re.sub(r"\$\{[^}]*\}", " ", one)
                for one in re.findall(r"\"[^\"]*\"|'[^']*'|`[^`]*`", re.sub(r"//.*", "", text))
                if " " in one
            )  # fmt: skip
            yield Line(f"{name}:{number}", shown)
