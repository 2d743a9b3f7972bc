"""One process that answers questions, one after the other, until its pipe is closed.

An answer is a status, as HTTP has it, a content type and bytes. Nothing that a question does can end the
process by an exception; what takes too long is ended from outside (pool.py). JSON goes in and bytes come
out: nothing is pickled.
"""

import json
import signal as signals
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Infeasible, Problem, ProblemsError, wrong
from foretell.web.limits import ELSEWHERE, Limits, TooMuch, check_work
from foretell.web.progress import watching

Reply = tuple[int, str, bytes]
"""Status, content type, content."""
JSON = "application/json"
GONE: Reply = (499, JSON, b"{}")
"""A response that nobody receives: the client has left."""
CANCEL: int | None = getattr(signals, "SIGUSR1", None)
"""The signal that ends a question under way; None where the system has none such."""
PROGRESS = 102
"""Status of a message that is no answer yet, as HTTP has it: how many of how many are done."""
HINT = "hint "
"""What a verb begins with whose answer is to have, where it is no, the nearest plan that works."""
SHOWN = "shown "
"""What a verb begins with whose answer is to have what is shown of it: headline, verdict, numbers."""
FIGURE = "figures "
"""What a verb that asks for a figure begins with."""


def work(pipe: Connection, limits: Limits) -> None:
    """Answer what comes through the pipe."""
    _quiet()
    _warm(limits)
    _bounded(limits.memory_bytes)
    task = CancellableAnswer(limits, pipe)
    pipe.send_bytes(b"ready")
    while True:
        try:
            verb, given = json.loads(pipe.recv_bytes())
            pipe.send_bytes(pack_reply(task.answer(verb, given)))
        except (EOFError, OSError):  # the server has ended
            return


class Cancelled(BaseException):
    """Nobody waits for the answer any more; no `except Exception` on the way keeps it."""


class CancellableAnswer:
    """Answers one question at a time; SIGUSR1 ends the one under way, and nothing else."""

    def __init__(self, limits: Limits, pipe: Connection) -> None:
        self._limits = limits
        self._pipe = pipe
        self._busy = False
        self._sends = False
        self._wanted = False
        if CANCEL is not None:
            signals.signal(CANCEL, self._cancel)

    def _cancel(self, number: int, frame: object) -> None:
        if self._busy and self._sends:  # no message is left half sent
            self._wanted = True
        elif self._busy:
            raise Cancelled

    def _report(self, done: int, total: int) -> None:
        """Tell the server how far the answer is."""
        self._sends = True
        try:
            self._pipe.send_bytes(pack_reply((PROGRESS, JSON, b"[%d,%d]" % (done, total))))
        finally:
            self._sends = False
        if self._wanted:
            raise Cancelled

    def answer(self, verb: str, given: Mapping[str, Any]) -> Reply:
        """The reply, or 499 where it was cancelled."""
        try:
            self._busy, self._wanted = True, False
            try:
                with watching(self._report):
                    return answer(verb, given, self._limits)
            finally:
                self._busy = False
        except Cancelled:
            return GONE


def pack_reply(reply: Reply) -> bytes:
    """A reply as bytes: status and content type in a line, then the content."""
    status, kind, content = reply
    return f"{status} {kind}\n".encode("ascii") + content


def unpack_reply(message: bytes) -> Reply:
    """The reply that `pack_reply` made bytes of."""
    line, _, content = message.partition(b"\n")
    status, _, kind = line.decode("ascii").partition(" ")
    return int(status), kind, content


def answer(verb: str, given: Mapping[str, Any], limits: Limits) -> Reply:
    """The reply to one question: 200, or 422 for bad input and for too much work."""
    from foretell.interop.user_files import names_only

    if verb.startswith(SHOWN):
        verb = verb.removeprefix(SHOWN)
        return _shown(verb.removeprefix(HINT), answer(verb, given, limits))
    hints = verb.startswith(HINT)
    verb = verb.removeprefix(HINT)
    try:
        with names_only():
            return _asked(verb, given, limits)
    except (BadInput, TooMuch) as error:
        return errors_reply(422, error)
    except Infeasible as error:
        from foretell.report.refusal import no_as_dict

        return json_reply(
            200, no_as_dict(error.problems, error.answer, hints=hints, read_back=error.read_back)
        )
    except (MemoryError, RecursionError):
        message = f"takes more memory than this server gives to one question; {ELSEWHERE}"
        return errors_reply(422, TooMuch([wrong("", None, message)]))
    except Exception as error:  # noqa: BLE001 - a defect of ours must not take the server down
        sys.stderr.write(f"foretell: fault in {verb}: {type(error).__name__}: {error}\n")
        message = "this is a fault of foretell, please report it"
        return errors_reply(500, TooMuch([Problem(path="", value=None, message=message)]))


def _shown(verb: str, reply: Reply) -> Reply:
    """A reply with what is shown of it, where it is an answer that has numbers or reasons."""
    from foretell.report.presentation.verbs import CARDS, presentation

    status, kind, content = reply
    told = json.loads(content) if status == 200 and kind == JSON else None
    if not isinstance(told, dict) or verb.partition(" ")[0] not in CARDS:
        return reply
    return json_reply(
        status, {"presentation": presentation(verb, told).to_dict(tables=True), **told}
    )


def _asked(verb: str, given: Mapping[str, Any], limits: Limits) -> Reply:
    from foretell.web import figures, lists
    from foretell.web.names import safe

    if verb in lists.LISTS:
        return json_reply(200, lists.LISTS[verb](given))
    if verb in lists.READERS:
        return json_reply(200, lists.READERS[verb](given))
    if verb.startswith(FIGURE):
        return json_reply(200, figures.draw_figure(verb.removeprefix(FIGURE), given, limits))
    flags = dict(given)
    check_work(flags)
    try:
        flags = safe(flags)
    except BadInput as error:
        raise BadInput([*error.problems, *_besides(verb, flags, limits)]) from None
    return _answered(verb, flags, limits)


def _besides(verb: str, given: Mapping[str, Any], limits: Limits) -> list[Problem]:
    """What else is wrong with a question that has wrong names: the verb looks at it without them.

    Only where a model or a system is among them: a verb refuses without one, before it does any work.
    """
    from foretell.web.names import UNKNOWN, without_wrong

    flags, gone = without_wrong(given)
    if gone.isdisjoint(("model", "system", "models", "systems")):
        return []
    try:
        _answered(verb, flags, limits)
    except ProblemsError as error:
        own = [p for p in error.problems if p.path not in gone]
        return [p for p in own if UNKNOWN not in f"{p.value} {p.message}"]
    return []


def _answered(verb: str, flags: dict[str, Any], limits: Limits) -> Reply:
    """The verb's answer to flags that name nothing but what is known."""
    from foretell.inputs.question import as_texts
    from foretell.web import answers, lists

    if "set" in flags:
        flags["set"] = as_texts(flags["set"])
    if verb in lists.FILES:
        return lists.FILES[verb](flags, limits)
    return json_reply(200, answers.VERBS[verb](flags, limits))


def json_reply(status: int, record: object) -> Reply:
    """A record as the command line writes it: unknown is null, dates are texts."""
    text = json.dumps(record, allow_nan=False, default=str, separators=(",", ":"))
    return status, JSON, text.encode("ascii")


def errors_reply(status: int, error: ProblemsError) -> Reply:
    """What is wrong, as a list."""
    from foretell.report.refusal import problem_as_dict

    return json_reply(status, {"errors": [problem_as_dict(p) for p in error.problems]})


def _quiet() -> None:
    """Leave interrupts to the server, which closes the pipe; say nothing of warnings."""
    import warnings

    signals.signal(signals.SIGINT, signals.SIG_IGN)
    warnings.simplefilter("ignore")


def _bounded(memory_bytes: int) -> None:
    """Refuse more memory beyond what is held now than one question may take, where the system can."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # not Linux
        return
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def _warm(limits: Limits) -> None:
    """Load what the first question would wait for."""
    answer("estimate", {"model": "gpt2", "system": "h100-sxm", "gpus": 8}, limits)
    answer("serve", {"model": "gpt2", "system": "h100-sxm", "plan": "tp1"}, limits)
