"""A model's config.json from the Hugging Face hub, kept in its own cache: `--hub`.

Nothing is fetched unless it is asked for, and no weights ever: config.json, and hf_quant_config.json where
the repository has one.
"""

import re
from contextlib import suppress
from pathlib import Path

from foretell.errors import BadInput, bad_input
from foretell.interop.huggingface.files import CONFIG, QUANTISATION
from foretell.interop.user_files import are_read, refusal

_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}")


def is_repository(name: object) -> bool:
    """Whether a name can be a repository's: owner/name."""
    return isinstance(name, str) and _REPOSITORY.fullmatch(name) is not None


def fetch_config(repository: str) -> Path:
    """The folder with the config of a repository: from the cache, else from the hub."""
    if not are_read():
        raise refusal("model", repository)
    if not is_repository(repository):
        raise _bad(repository, "is no repository", "owner/name, such as meta-llama/Llama-3.1-8B")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise _bad(repository, "is not in the catalogue, and --hub needs huggingface_hub",
                   'pip install "foretell[hub]"') from None  # fmt: skip
    why = ""
    for cached in (True, False):
        try:
            found = hf_hub_download(repository, CONFIG, local_files_only=cached)
        except Exception as error:  # noqa: BLE001 - many kinds, and all mean that it is not to be had
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        with suppress(Exception):  # most repositories have none
            hf_hub_download(repository, QUANTISATION, local_files_only=cached)
        return Path(found).parent
    raise _bad(repository, f"could not be fetched from the hub: {why}", "a config.json on disk")


def _bad(repository: str, message: str, allowed: str) -> BadInput:
    return bad_input("model", repository, message, allowed)
