"""What is installed, calibrated and reachable here, what each is for, and how to get what is not there."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from foretell.records import as_json, dataclass
from foretell.report.figures.files import BROWSERS

EXTRAS = {
    "polars": ("sweep", "results of sweeps as tables"),
    "distributed": ("sweep", "sweeps on a cluster of Dask workers"),
    "plotly": ("plot", "figures in notebooks and pages"),
    "fastapi": ("web", "the page and its API"),
    "uvicorn": ("web", "the page and its API"),
    "optuna": ("optimise", "searches over systems and plans by sampling"),
    "scipy": ("calibrate", "fitting what was measured"),
    "mkdocs": ("docs", "the site of the documentation, by ./docs-site"),
    "huggingface_hub": ("hub", "configs of models outside the catalogue, with --hub"),
    "pyyaml": ("interchange", "reading YAML of other tools with --import"),
    "tomli-w": ("interchange", "writing TOML for other tools with --export"),
    "tokenizers": ("translate", "training of translation models"),
    "sacrebleu": ("translate", "scores of translations"),
    "mcp": ("mcp", "tools of assistants"),
}
"""Packages that some verbs need: the extra that brings them, and what for."""
CORE = ("numpy", "cyclopts", "rich")
"""Packages that every verb needs."""
NARROWEST_S = 5.0
"""A program that is asked for its version and takes longer is not waited for."""
HUB_S = 3.0
"""The same for an answer of the hub."""
LARGEST_BYTES = 1 << 20
"""A longer file is no chip's."""

State = Literal["ok", "absent", "no"]
"""There and in order; not there, which some verbs would like; there and not in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked for."""

    group: str
    """installed, calibrated or reachable."""
    name: str
    """What it is called."""
    state: State
    """Whether it is there."""
    found: str
    """Version, place or count; why not where it is not."""
    purpose: str
    """What it is for."""
    get: str | None
    """How to get it, where it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that was looked for."""

    version: str
    """Of Foretell."""
    python: str
    """Of the interpreter."""
    platform: str
    """Operating system and machine."""
    checks: tuple[Check, ...]
    """In the order of the groups."""

    to_dict = as_json()


def diagnose(folder: Path = Path(), results: Path = Path("results")) -> Diagnosis:
    """Look at this environment, at the chip files of a folder and at a folder of results."""
    from foretell import __version__

    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        checks=(
            *_packages(),
            _torch(),
            _gpus(),
            _browser(),
            _catalogue(),
            *_calibrated(folder),
            _hub(),
            _results(results),
        ),
    )


def _check(
    group: str, name: str, state: State, found: str, purpose: str, get: str | None = None
) -> Check:
    """One thing that was looked for; how to get it only where it is not there."""
    get = None if state == "ok" else get
    return Check(group=group, name=name, state=state, found=found, purpose=purpose, get=get)


def _installed(name: str, state: State, found: str, purpose: str, get: str = "") -> Check:
    return _check("installed", name, state, found, purpose, get)


def _packages() -> Iterator[Check]:
    for name in CORE:
        found = _version(name)
        state: State = "ok" if found else "no"
        yield _installed(name, state, found or "not found", "every verb", "pip install foretell")
    for name, (extra, purpose) in EXTRAS.items():
        version = _version(name)
        get = f'pip install "foretell[{extra}]"'
        state = "ok" if version else "absent"
        yield _installed(name, state, version or "not installed", purpose, get)


def _version(package: str) -> str | None:
    """What is installed of a package, without loading it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _torch() -> Check:
    """PyTorch and the platform it was built for, read from its files: loading it takes seconds."""
    version = _version("torch")
    purpose = "measuring this machine, and real modules to compare with"
    if version is None:
        get = f"{sys.executable} -m pip install torch"
        return _installed("torch", "absent", "not installed", purpose, get)
    spec = find_spec("torch")
    built = ", for the CPU"
    for place in (spec.submodule_search_locations or ()) if spec else ():
        with suppress(OSError):
            text = (Path(place) / "version.py").read_text(encoding="utf-8")
            for kind, title in (("cuda", "CUDA"), ("hip", "ROCm")):
                if told := re.search(rf"^{kind}\b[^=\n]*= *'([^']+)'", text, re.MULTILINE):
                    built = f", for {title} {told[1]}"
    return _installed("torch", "ok", f"{version}{built}", purpose)


def _gpus() -> Check:
    """Accelerators by the vendors' own programs."""
    purpose = "calibrate measure on a GPU; nothing else needs one"
    questions = {
        "nvidia-smi": ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        "rocm-smi": ["--showproductname", "--csv"],
    }
    for program, words in questions.items():
        if (path := shutil.which(program)) is None:
            continue
        try:
            said = subprocess.run(
                [path, *words], capture_output=True, text=True, timeout=NARROWEST_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return _installed("gpu", "no", f"{program} fails", purpose, "look at its driver")
        lines = [line.strip() for line in said.stdout.splitlines() if line.strip()]
        many = f"{len(lines)} x " if len(lines) > 1 else ""
        return _installed("gpu", "ok", many + (lines or ["none"])[0], purpose)
    get = "a machine with one and its driver; a CPU can be measured too"
    return _installed("gpu", "absent", "neither nvidia-smi nor rocm-smi", purpose, get)


def _browser() -> Check:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    state: State = "ok" if found else "absent"
    purpose = "pictures as .png, and the tests of the page"
    get = "apt install chromium, or another Chrome on the PATH; .svg and .html need none"
    return _installed("chromium", state, found or "not on the PATH", purpose, get)


def _catalogue() -> Check:
    """What the package itself knows."""
    from foretell.catalog.model_names import model_entries
    from foretell.catalog.names import load

    counts = {kind: len(ids) for kind, ids in load().titles.items()}
    said = f"{counts['chip']} chips, {counts['system']} systems, {len(model_entries())} models"
    return _installed("catalogue", "ok", said, "names for --system and models")


def _calibrated(folder: Path) -> Iterator[Check]:
    """Chip files that `calibrate fit` wrote into a folder."""
    purpose = "predictions for this very chip: --system FILE"
    get = "foretell calibrate measure, then calibrate fit (docs/tutorials/calibrate-your-gpu.md)"
    files = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    known = [(path, chip) for path in files if (chip := _calibrated_chip(path)) is not None]
    for path, said in known:
        yield _check("calibrated", str(path), "ok", said, purpose)
    if not known:
        found = f"none in {folder.absolute()}"
        yield _check("calibrated", "chip files", "absent", found, purpose, get)


def _calibrated_chip(path: Path) -> str | None:
    """What a chip file of one's own holds; None for any other file."""
    from foretell.catalog.files import read_table
    from foretell.errors import BadInput

    try:
        if path.stat().st_size > LARGEST_BYTES:
            return None
        table = read_table(path)
    except (BadInput, OSError):
        return None
    chip = table.get("chip")
    surfaces = table.get("surface") or (chip.get("surface") if isinstance(chip, dict) else None)
    if not isinstance(surfaces, list) or not surfaces:
        return None
    name = chip.get("id") or chip.get("base") if isinstance(chip, dict) else chip
    families = {str(s.get("family")) for s in surfaces if isinstance(s, dict)}
    return f"{name or path.stem}: {len(surfaces)} surfaces ({', '.join(sorted(families))})"


def _hub() -> Check:
    """Whether the hub answers, asked in a thread that is not waited for: names may take long to resolve."""
    purpose = "models that are not in the catalogue; all else works without"
    if find_spec("huggingface_hub") is None:
        found, get = "not asked: huggingface_hub is not installed", 'pip install "foretell[hub]"'
        return _check("reachable", "hub", "absent", found, purpose, get)
    from huggingface_hub.constants import ENDPOINT

    answer = _connects(ENDPOINT)
    if answer == "":
        return _check("reachable", "hub", "ok", ENDPOINT, purpose)
    get = "a network; or save the model's config.json and give its path"
    return _check("reachable", "hub", "absent", f"{ENDPOINT}: {answer}", purpose, get)


def _connects(address: str) -> str:
    """Why a server does not answer; empty where it does."""
    import socket
    from threading import Thread
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    outcome = ["no answer"]

    def ask() -> None:
        try:
            port = parts.port or (80 if parts.scheme == "http" else 443)
            with socket.create_connection((parts.hostname or "", port), timeout=HUB_S):
                outcome[0] = ""
        except (OSError, ValueError) as error:
            outcome[0] = str(getattr(error, "strerror", None) or error)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_S)
    return outcome[0]


def _results(folder: Path) -> Check:
    """A folder that runs are kept in, one's own or shared."""
    purpose = "what sweeps and measured runs leave; share it for others to go on with"
    name = "results folder"
    if not folder.is_dir():
        found, get = f"no folder {folder.absolute()}", f"mkdir {folder}, or --results DIR"
        return _check("reachable", name, "absent", found, purpose, get)
    free = shutil.disk_usage(folder).free
    many = sum(1 for _ in folder.iterdir()) if os.access(folder, os.R_OK) else 0
    said = f"{folder.absolute()}: {many} entries, {free / 2**30:,.0f} GiB free"
    if os.access(folder, os.W_OK | os.X_OK):
        return _check("reachable", name, "ok", said, purpose)
    get = "the right to write there, or --results DIR"
    return _check("reachable", name, "no", f"{said}, not writable", purpose, get)
