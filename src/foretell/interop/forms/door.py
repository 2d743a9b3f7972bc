"""The processes and settings of a launch file, whatever its form: `read_form`."""

import re
from collections.abc import Callable
from pathlib import Path

from foretell.errors import BadInput
from foretell.interop.forms import containers, kubernetes, python_programs
from foretell.interop.forms.declared import read_declared
from foretell.interop.forms.python_programs import python_processes
from foretell.interop.forms.records import Form, LaunchContents
from foretell.interop.forms.script import no_file, read_script
from foretell.interop.forms.trees import Tree, bad, json_tree, settings, toml_tree, yaml_trees
from foretell.interop.user_files import are_read, is_there, user_text

LARGEST_TEXT = 1 << 22
"""Characters of a text; a longer one is no launch file."""
LARGEST_SCRIPT = 1 << 18
"""Characters of a script."""
_SECTION = re.compile(r"^[ \t]*\[{1,2}[\w.\-\"' ]{1,200}\]{1,2}[ \t]*(?:#.*)?$", re.MULTILINE)
_TOML_KEY = re.compile(r"^[ \t]*[\w.\-\"']{1,200}[ \t]*=[ \t]*\S", re.MULTILINE)
_ENDINGS = (".sh", ".slurm", ".sbatch", ".bash", ".pbs", ".yaml", ".yml", ".json", ".toml")
"""Ends of names that say a form."""
_FLAG = re.compile(r"^[ \t]*--\w", re.MULTILINE)
_YAML_LINE = re.compile(r"---.*|(?:- )?[\w.\"'/-]{1,200}[ \t]*:(?:\s.*)?|%YAML.*")
_HERE = re.compile(
    r"^[ \t]*(?:cat|tee|sudo|bash|ssh|sbatch|kubectl|read|python3?)\b.{0,400}<<", re.MULTILINE
)
_PYTHON = re.compile(
    r"^(?:import |from [\w.]+ import |def \w+\(|class \w+[(:]|@\w|if __name__ ==)"
    r"|^(?:cfg|config|recipe|job_config)\.[\w.]+[ \t]*=",
    re.MULTILINE,
)


def read_form(given: Path | str, folder: Path | None = None, *, name: str = "") -> LaunchContents:
    """What a text launches; a `Path` is opened, and files beside it may be.

    `folder` is where files beside a text lie, None where none may be opened; `name` is the name of its file,
    by which its form is known. BadInput where the text is too long, empty, or not what its form says.
    """
    if isinstance(given, Path):
        text, name = user_text(given, "import"), given.name
        folder = folder or given.resolve().parent
    else:
        text = given
    if len(text) > LARGEST_TEXT:
        raise bad(f"is longer than {LARGEST_TEXT} characters")
    text = text.replace("\r\n", "\n").replace("\0", " ").lstrip("\ufeff")
    if not text.strip():
        raise bad("is empty")
    return _of_form(text, name, opener(folder))


def opener(folder: Path | None) -> Callable[[str], str | None]:
    """What opens a file beside a launch, by its path or its last part; never outside of the folder."""
    if folder is None or not are_read():
        return no_file
    home = folder.resolve()

    def open_file(name: str) -> str | None:
        for one in (name, name.rpartition("/")[2]):
            path = (home / one).resolve()
            if one and path.is_relative_to(home) and is_there(path, folder=False):
                try:
                    return path.read_text(encoding="utf-8")[:LARGEST_SCRIPT]
                except (OSError, UnicodeDecodeError):
                    return None
        return None

    return open_file


_TEMPLATE = re.compile(
    r"^[ \t]*(?:\w+:[ \t]*)?\{\{-?[ \t]*(?:if|with|range|include|define|toYaml|template)\b", re.M
)
"""A line of a template that Helm fills."""


def _of_form(text: str, name: str, open_file: Callable[[str], str | None]) -> LaunchContents:
    start = text.lstrip()[0]
    if name.endswith((".yaml", ".yml", ".tpl")) and _TEMPLATE.search(text):
        raise bad("is a template: import what `helm template` makes of it")
    if start == "{":
        try:
            tree = json_tree(text)
        except BadInput:
            if not name.endswith((".yml", ".yaml")):
                raise
            return _of_trees(yaml_trees(text), "yaml", open_file)
        if python_programs.is_notebook(tree.value):
            return python_programs.read_notebook(text)
        return _of_trees([tree], "json", open_file)
    if "[Service]" in text and re.search(r"^ExecStart=", text, re.MULTILINE):
        return containers.read_unit(text)
    if name.endswith(".py") or (not name.endswith(_ENDINGS) and _is_python(text)):
        return LaunchContents(form="python", python=text, processes=tuple(python_processes(text)))
    if "dockerfile" in name.lower() or containers.is_dockerfile(text):
        return containers.read_dockerfile(text)
    if _is_toml(text, name):
        return LaunchContents(form="toml", settings=settings(toml_tree(text)))
    if name.endswith((".yaml", ".yml")) or (not _is_shell(name, text) and like_yaml(text)):
        return _of_trees(yaml_trees(text), "yaml", open_file)
    if len(text) > LARGEST_SCRIPT:
        raise bad(f"is a script longer than {LARGEST_SCRIPT} characters")
    return read_script(text, open_file=open_file)


def _is_shell(name: str, text: str) -> bool:
    return name.endswith((".sh", ".slurm", ".sbatch", ".bash", ".pbs")) or text.lstrip().startswith(
        "#!"
    )


def _is_python(text: str) -> bool:
    """Whether a text without a name is Python: it has statements of Python and none of a shell."""
    if _HERE.search(text):
        return False
    shell = re.search(r"^[ \t]*(?:export \w+=|fi\b|done\b|esac\b|#SBATCH)", text, re.MULTILINE)
    return bool(_PYTHON.search(text)) and shell is None


def _is_toml(text: str, name: str) -> bool:
    if name.endswith(".toml"):
        return True
    if _is_shell(name, text) or "<<" in text or _FLAG.search(text):
        return False
    first = text.lstrip().partition("\n")[0]
    keys = bool(_TOML_KEY.search(text)) or bool(_SECTION.fullmatch(first))
    return bool(_SECTION.search(text)) and keys and not like_yaml(text)


def like_yaml(text: str) -> bool:
    """Whether the first line that says anything is a key of YAML, or the beginning of a document."""
    return bool(_YAML_LINE.fullmatch(containers.first_line(text).strip()))


def _of_trees(
    trees: list[Tree], form: Form, open_file: Callable[[str], str | None]
) -> LaunchContents:
    """A configuration, or one of the forms that YAML and JSON carry."""
    for tree in trees:
        if (declared := read_declared(tree, open_file)) is not None:
            return declared
        if containers.is_compose(tree.value):
            return containers.read_compose(tree)
    if any(kubernetes.is_manifest(tree.value) for tree in trees):
        return kubernetes.read_manifests(trees)
    found = [one for tree in trees if isinstance(tree.value, dict) for one in settings(tree)]
    if not found and trees and not isinstance(trees[0].value, dict):
        raise BadInput(bad("is not a table of keys and values").problems)
    return LaunchContents(form=form, settings=tuple(found))
