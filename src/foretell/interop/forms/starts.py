"""Commands of a script: builtins of the shell are followed, utilities left out, the rest are processes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from foretell.interop.forms.expansion import array_of
from foretell.interop.forms.facts import batch_facts, batch_layer, slurm_variables
from foretell.interop.forms.records import LaunchedProcess, LauncherLayer, Word
from foretell.interop.forms.unwrap import EXTRAS, LAUNCHERS, UTILITIES, Unwrapped, unwrapped
from foretell.interop.forms.values import Source, TextPiece, Token, Value, literal, text_of, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

    from foretell.interop.forms.shell import Shell

RAY_SCRIPTS = frozenset({"multi-node-serving.sh", "run_cluster.sh"})
"""vLLM's scripts that start Ray on the nodes of a server, and nothing else."""
_SETS = re.compile(r"\s*([A-Za-z_]\w*)\s*(\+\+|--|[-+*/%]?=(?!=))\s*(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"[+~]*[\w-]+(?:\.[\w-]+)+=")
_MOST_TEXT = 1 << 18


def arithmetic_statement(text: str) -> tuple[str, str, str]:
    """(variable, sign, change) of `i++`, `n += 2`, `n = 3`; empty where the text sets nothing."""
    match = _SETS.fullmatch(text)
    if match is None:
        return "", "", ""
    if match[2] in ("++", "--"):
        return match[1], match[2][0], "1"
    return match[1], match[2][:-1], match[3]


def run_command(
    shell: "Shell",
    node: "Node",
    *,
    stdin: list[TextPiece] | None = None,
    target: str = "",
    appends: bool = False,
) -> str:
    """Follow one command; the signal by which it leaves the script."""
    prefix: dict[str, Value] = {}
    nodes: list[Node] = []
    for child in node.children:
        if child.type == "variable_assignment" and not nodes:
            name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
            if name is not None and name.text:
                made = tuple(shell.pieces(value)) if value is not None else ()
                prefix[name.text.decode()] = made
        elif child.type == "herestring_redirect":
            stdin = [piece for one in child.children if one.is_named for piece in shell.pieces(one)]
        elif child.is_named and child.type not in ("file_redirect", "comment", "heredoc_redirect"):
            nodes.append(child)
    tokens = shell.tokens(nodes)
    if tokens and _OVERRIDE.match(tokens[0].text) and prefix:  # overrides without a program
        own = [one for one in node.children if one.type == "variable_assignment"]
        tokens, prefix = [*shell.tokens(own), *tokens], {}
    if not tokens:
        for label, made in prefix.items():
            shell.scope.set(label, made)
        return ""
    return run_tokens(shell, tokens, prefix, stdin=stdin, target=target, appends=appends)


def run_tokens(
    shell: "Shell",
    tokens: list[Token],
    prefix: dict[str, Value],
    *,
    stdin: list[TextPiece] | None = None,
    target: str = "",
    appends: bool = False,
) -> str:
    """Follow a command whose words are expanded."""
    name = tokens[0].text
    line = tokens[0].word.line
    while (
        len(tokens) > 1
        and re.fullmatch(r"[A-Za-z_]\w*=[^=].*", name, re.DOTALL)
        and "." not in name
        and not _OVERRIDE.match(tokens[1].text)
    ):
        label, _, text = name.partition("=")  # an assignment that came out of a variable
        prefix[label] = literal(text, line)
        tokens = tokens[1:]
        name = tokens[0].text
    if name in ("exit", "return", "break", "continue"):
        failed = name in ("exit", "return") and len(tokens) > 1 and tokens[1].text != "0"
        return "fail" if failed else name
    if name in shell.house.functions:
        for label, value in prefix.items():
            shell.scope.set(label, value)
        return shell.call(name, [token.pieces for token in tokens[1:]])
    if name in ("source", ".") and len(tokens) > 1:
        _source(shell, tokens[1])
        return ""
    if name == "eval":
        return _inner(shell, _joined(tokens[1:]), same=True)
    if name == "let":
        for token in tokens[1:]:
            shell.calculate(token.text, line)
        return ""
    if name == "read" and len(tokens) > 1:
        _read(shell, tokens, prefix, stdin)
        return ""
    if name == "shift" and shell.scope.positions is not None:
        shell.scope.positions = shell.scope.positions[1:]
        return ""
    if name == "export":
        shell.scope.exported |= {token.text.partition("=")[0] for token in tokens[1:]}
        return ""
    _writes(shell, tokens, stdin, target, appends=appends)
    _start(shell, tokens, prefix, stdin)
    return "exit" if name == "exec" and len(tokens) > 1 else ""


def _read(
    shell: "Shell", tokens: Sequence[Token], prefix: dict[str, Value], stdin: list[TextPiece] | None
) -> None:
    """`read NAME...`: what it is handed, as a whole (`-d ''`), as words of an array (`-a`), a word for each
    name, or not known."""
    words, line = [token.text for token in tokens[1:]], tokens[0].word.line
    options = {one for one in words[:-1] if one.startswith("-")}
    names = [one for one in words if one.isidentifier()] or words[-1:]
    sign = text_of(prefix.get("IFS", ())) or None
    if stdin is None or any(piece.names for piece in stdin):
        whole = tuple(stdin or ())
        for name in names:
            known = stdin is not None and len(names) == 1
            shell.scope.set(name, whole if known else unknown(name, line))
    elif any("a" in one for one in options):
        parts = text_of(stdin).strip().split(sign)
        shell.scope.set(names[-1], array_of([literal(part, line) for part in parts]))
    elif len(names) == 1:
        shell.scope.set(names[0], tuple(stdin))
    else:
        parts = text_of(stdin).strip().split(sign, len(names) - 1)
        for name, part in zip_longest(names, parts, fillvalue=""):
            shell.scope.set(name, literal(part.strip(), line))


def _joined(tokens: Sequence[Token]) -> Value:
    pieces: list[TextPiece] = []
    for token in tokens:
        if pieces:
            pieces.append(TextPiece(" ", pieces[-1].line, pieces[-1].origin))
        pieces += token.pieces
    return tuple(pieces)


def _writes(
    shell: "Shell",
    tokens: Sequence[Token],
    stdin: list[TextPiece] | None,
    target: str,
    *,
    appends: bool,
) -> None:
    """Files that cat, tee, echo and printf write."""
    name = tokens[0].text
    if name == "sudo" and len(tokens) > 1:
        tokens, name = tokens[1:], tokens[1].text
    pieces: Value | None = None
    if name == "cat" and stdin is not None:
        pieces = tuple(stdin)
    elif name == "tee" and stdin is not None:
        pieces = tuple(stdin)
        names = [one.text for one in tokens[1:] if not one.text.startswith("-")]
        target = names[0] if names else target
    elif name in ("echo", "printf") and target:
        told = _joined([one for one in tokens[1:] if one.text not in ("-n", "-e")])
        ends = "" if name == "printf" else "\n"
        pieces = (
            *(one._replace(text=one.text.replace("\\n", "\n")) for one in told),
            *literal(ends, 0),
        )
    if pieces is None or not target or target.startswith("/dev/"):
        return
    before = shell.house.sources.get(target, ()) if appends else ()
    if sum(len(one.text) for one in (*before, *pieces)) < _MOST_TEXT:
        shell.house.sources[target] = (*before, *pieces)
        shell.house.files[target] = text_of(shell.house.sources[target])


def _source(shell: "Shell", token: Token) -> None:
    """Follow a file that is read into the script."""
    text = opened(shell, token.text)
    if text is None:
        shell.house.missing[token.text] = None
        return
    if shell.depth > 6:
        return
    kept, depth, skip = shell.source, shell.depth, shell.skip_to
    written = shell.house.sources.get(token.text, literal(text, 0))
    shell.source, shell.depth, shell.skip_to = Source(written), depth + 1, 0
    shell.run_all()
    shell.source, shell.depth, shell.skip_to = kept, depth, skip


def opened(shell: "Shell", name: str) -> str | None:
    """The text of a file that the script wrote or that lies beside it."""
    written = shell.house.files.get(name)
    if written is not None or "${" in name:
        return written
    return shell.house.open_file(name.removeprefix("./"))


def _inner(
    shell: "Shell",
    text: Value,
    *,
    found: Unwrapped | None = None,
    positions: Sequence[Value] = (),
    same: bool = False,
) -> str:
    """Follow a script inside a command; with `same` in the script's own scope."""
    from foretell.interop.forms.shell import DEEPEST, Shell

    if shell.depth > DEEPEST:
        return ""
    scope = shell.scope if same else shell.scope.copied()
    env = {**shell.env, **(found.env if found else {})}
    for name, word in (found.env if found else {}).items():
        scope.set(name, (TextPiece(word.text, word.line, word.line, names=word.unknown),))
    if found is not None and positions:
        scope.positions = tuple(positions)
    batch = batch_layer(text_of(text), text[0].line if text else 0)
    scope.values |= slurm_variables(batch_facts(batch)) if batch else {}
    inner = Shell(
        Source(text), scope, shell.house, depth=shell.depth + 1, condition=shell.condition, env=env,
        layers=(*shell.layers, *(found.layers if found else ()), *((batch,) if batch else ())),
        image=(found.image if found else "") or shell.image,
    )  # fmt: skip
    inner.background = shell.background
    inner.run_all()
    return ""


def _start(
    shell: "Shell", tokens: Sequence[Token], prefix: dict[str, Value], stdin: list[TextPiece] | None
) -> None:
    """Take the launchers off a command and note the process behind them."""
    words = [token.word for token in tokens]
    name = words[0].text.rpartition("/")[2]
    if name == "ray" and len(words) > 1 and words[1].text == "start":
        told = LauncherLayer(name="ray start", argv=tuple(words[2:])).value("--num-gpus")
        shell.house.rays.extend([told] if told else [])
        return
    found = unwrapped(words)
    own = {label: _word(value) for label, value in prefix.items()}
    found = replace(found, env={**own, **found.env})
    by_id = {id(token.word): token.pieces for token in tokens}
    if found.text is not None:
        pieces = by_id.get(id(found.text)) or _plain(found.text)
        behind = [by_id.get(id(word)) or _plain(word) for word in found.words[1:]]
        _inner(shell, pieces, found=found, positions=behind)
        return
    if found.stdin and stdin is not None:
        _inner(shell, tuple(stdin), found=found)
        return
    if not found.words:
        if found.image:
            note(shell, found, ())
        return
    first = found.words[0].text
    if found.script or first.endswith((".sh", ".slurm", ".sbatch", ".bash")):
        text = opened(shell, first)
        if text is not None and len(shell.layers) < 8:
            behind = [by_id.get(id(word)) or _plain(word) for word in found.words[1:]]
            source = shell.house.sources.get(first, literal(text, 0))
            _inner(shell, source, found=found, positions=behind)
            return
        if first.rpartition("/")[2] in RAY_SCRIPTS:
            return
        shell.house.missing[first] = None
    base = first.rpartition("/")[2]
    if base in UTILITIES or not base or _is_other_verb(base) or base == "-c":
        return
    if stdin is not None and base in ("kubectl", "oc", "-", "python"):
        shell.house.files[f"<{base}:{words[0].line}>"] = text_of(stdin)
    if base in ("kubectl", "oc") or first in ("-", "python"):
        return
    loose = {id(token.word) for token in tokens
             if len(token.pieces) == 1 and (token.pieces[0].split or "@" in token.word.unknown)}  # fmt: skip
    note(shell, found, found.words, frozenset(loose))


def _is_other_verb(base: str) -> bool:
    """Whether a launcher is asked for something else than to launch: `docker pull`, `uv pip`."""
    launcher = LAUNCHERS.get(base)
    return launcher is not None and bool(launcher.verbs)


def _plain(word: Word) -> Value:
    return (TextPiece(word.text, word.line, word.set_line or word.line, names=word.unknown),)


def _word(value: Value) -> Word:
    line = value[0].line if value else 0
    names = tuple(name for piece in value for name in piece.names)
    return Word(text=text_of(value), line=line, raw=text_of(value), unknown=names)


def note(
    shell: "Shell", found: Unwrapped, words: Sequence[Word], loose: frozenset[int] | None = None
) -> None:
    """Add a process with its launchers and variables; `loose` are words that may be of any number."""
    from foretell.interop.forms.shell import MOST_PROCESSES

    if len(shell.house.processes) >= MOST_PROCESSES:
        return
    kept, extras = list[Word](), list[str]()
    for at, word in enumerate(words):
        whole = len(word.unknown) == 1 and word.text == f"${{{word.unknown[0]}}}"
        if (
            at
            and whole
            and (loose is None or id(word) in loose)
            and EXTRAS.fullmatch(word.unknown[0])
        ):
            extras.append(word.unknown[0])
        else:
            kept.append(word)
    exported = {
        name: _word(value)
        for name in shell.scope.exported
        if isinstance(value := shell.scope.values.get(name), tuple)
    }
    if kept and kept[0].text.startswith("-") and shell.house.processes and not found.image:
        return  # flags behind a line that ends the command: a shell passes them to nothing
    process = LaunchedProcess(
        program=words[0].text if words and not words[0].text.startswith("-") else "",
        argv=tuple(kept),
        env={**exported, **shell.env, **found.env},
        layers=(*shell.layers, *found.layers),
        image=found.image or shell.image,
        background=shell.background,
        extras=tuple(dict.fromkeys(extras)),
        condition=shell.condition,
    )
    shell.house.processes.append(process)
