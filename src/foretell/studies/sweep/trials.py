"""Trials of an optimisation: what Optuna asks, where it is kept, and in which order.

A trial is one point of a study. Optuna's sampler chooses it; everything random comes from the study's seed
and the trial's own number, and trials are asked in batches of which none is told before all are asked. So a
trial depends on those told before its batch and on nothing else, and an optimisation that was killed goes
on as if it had not been.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.specs.study import Axis, Study
from foretell.studies.sweep.mix import objectives_of
from foretell.studies.sweep.shards import program_hash

BATCH = 8
"""Trials that are asked before any of them is told."""
STARTUP = 16
"""Trials by chance before those told are learned from."""
SQLITE = (".db", ".sqlite", ".sqlite3")
"""Endings of storages that are databases; others are journals, a line for each thing that happens."""
NAME = "foretell"
"""What a study is called in its storage."""
ROWS = "rows"
"""The key that holds the answers of a trial."""
FAR = 1e30
"""What a trial without an answer is told to have: worse than any."""


@contextmanager
def quiet_optuna() -> Iterator[Any]:
    """Optuna without its messages; BadInput where it is not installed."""
    try:
        import optuna
    except ImportError:
        message, allowed = (
            "needs optuna, which is not installed",
            'pip install "foretell[optimise]"',
        )
        raise bad_input("optimise", None, message, allowed) from None
    import warnings

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a limit told twice, options that may change
            yield optuna
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def trial_storage(file: Path | None) -> Iterator[Any]:
    """A storage that nobody else writes: a file, or memory; what a killed run left half-written is mended."""
    import optuna

    if file is None:
        yield optuna.storages.InMemoryStorage()
        return
    import fcntl

    try:
        with file.with_name(f"{file.name}.busy").open("w") as busy:
            try:
                fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise BadInput([_of(file, "another run is writing there")]) from None
            yield _opened(file)
    except OSError as error:
        raise BadInput([_of(file, f"cannot be written: {error.strerror}")]) from None


def _opened(file: Path) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if file.suffix in SQLITE:
        return optuna.storages.RDBStorage(f"sqlite:///{file}")
    Path(f"{file}.lock").unlink(missing_ok=True)
    if file.exists():
        content = file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            file.write_bytes(whole)
    return JournalStorage(JournalFileBackend(str(file)))


def _of(file: Path, message: str, allowed: str | None = None) -> Problem:
    return wrong("storage", str(file), message, allowed)


class Trials:
    """The trials of one study in one storage."""

    def __init__(self, study: Study, storage: Any, file: Path | None, *, resume: bool) -> None:
        import optuna

        self.study, self.optuna = study, optuna
        ways = ["minimize" if way == "min" else "maximize" for way in objectives_of(study).values()]
        if NAME in optuna.get_all_study_names(storage) and not resume:
            message = "holds trials already"
            raise BadInput([_of(file or Path(), message, "--resume to go on, or another file")])
        self.kept = optuna.create_study(
            storage=storage, study_name=NAME, directions=ways, load_if_exists=True
        )
        self._same(file)

    def _same(self, file: Path | None) -> None:
        """Refuse to go on with another study or another program."""
        mine = {"study": json.loads(json.dumps(self.study.table)), "program": program_hash()}
        there = self.kept.user_attrs
        for name, value in mine.items():
            if name not in there:
                self.kept.set_user_attr(name, value)
            elif there[name] != value:
                what = "another study" if name == "study" else "another version of foretell"
                message = f"holds trials of {what}, which are not mixed"
                raise BadInput([_of(file or Path(), message, "another file")])

    def done(self) -> list[Any]:
        """Trials that were told, in their order."""
        told = (self.optuna.trial.TrialState.COMPLETE,)
        return list(self.kept.get_trials(deepcopy=False, states=told))

    def asked(self) -> list[Any]:
        """The batch that is to be answered now: what was asked before and not told, and new trials.

        A batch is always asked as a whole, also where fewer trials are wanted: more may be later.
        """
        state = self.optuna.trial.TrialState
        running = []
        for trial in self.kept.get_trials(deepcopy=False, states=(state.RUNNING,)):
            if len(trial.params) == len(self.study.axes):
                running.append(trial)
            else:  # killed between two of its fields
                self.kept.tell(trial.number, state=state.FAIL)
        told = len(self.done())
        if told % BATCH and running:  # the batch was asked as a whole
            return running
        for _ in range(BATCH - told % BATCH - len(running)):
            running.append(self._ask(told + len(running)))
        return running

    def _ask(self, index: int) -> Any:
        """One new trial, with a sampler of its own."""
        seed = np.random.SeedSequence([self.study.seed, index]).generate_state(1)[0]
        self.kept.sampler = self.optuna.samplers.TPESampler(
            n_startup_trials=STARTUP,
            seed=int(seed),
            multivariate=True,
            constant_liar=True,
        )
        trial = self.kept.ask()
        for axis in self.study.axes:
            _suggest(trial, axis)
        return self.kept.get_trials(deepcopy=False)[trial.number]

    def tell(
        self, trial: Any, values: Sequence[float], missed: Mapping[str, float], rows: Any
    ) -> None:
        """Keep a trial's answers, and let the sampler know its objectives and limits.

        `missed` is by how much it misses each limit; at most 0 where it does not.
        """
        live = self.optuna.trial.Trial(self.kept, trial._trial_id)
        live.set_user_attr(ROWS, rows)
        for name, by in missed.items():
            live.set_constraint(name, by)
        self.kept.tell(trial.number, list(values))

    def rows(self) -> list[tuple[Any, list[dict[str, Any]]]]:
        """Every told trial with its answers."""
        return [(trial, trial.user_attrs[ROWS]) for trial in self.done()]


def _suggest(trial: Any, axis: Axis) -> None:
    """One field of a trial: a place in a list of numbers, one of several texts, or between two ends."""
    if axis.values and all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in axis.values
    ):
        trial.suggest_int(axis.path, 0, len(axis.values) - 1)
    elif axis.values:
        trial.suggest_categorical(axis.path, [str(value) for value in axis.values])
    elif axis.whole:
        trial.suggest_int(axis.path, round(axis.low), round(axis.high), log=axis.log)
    else:
        trial.suggest_float(axis.path, axis.low, axis.high, log=axis.log)


def place_of(axis: Axis, given: Any) -> float:
    """What a trial has of an axis, as a study's points have it: a place among values, or a value."""
    if axis.values and isinstance(given, str):
        return float([str(value) for value in axis.values].index(given))
    return float(given)
