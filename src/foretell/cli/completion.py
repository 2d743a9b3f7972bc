"""`foretell completion`: what a shell reads to complete verbs, flags and names."""

from typing import Annotated, Literal

from foretell.cli.flags import Json, arg
from foretell.cli.output import write_json

INSTALL = {
    "bash": 'eval "$(foretell completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(foretell completion zsh)" in ~/.zshrc, after compinit',
    "fish": "foretell completion fish > ~/.config/fish/completions/foretell.fish",
}
"""Where each shell takes it from."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], arg("Which shell.")],
    *,
    json: Json = False,
) -> int:
    """Print the shell's completion: verbs, flags, and ids of models and systems as you type."""
    from foretell.cli.app import make_app
    from foretell.cli.command import show_flags

    show_flags(every=True)
    script = make_app().generate_completion(shell=shell)
    if json:
        write_json({"shell": shell, "install": INSTALL[shell], "script": script})
    else:
        print(script, end="")
    return 0
