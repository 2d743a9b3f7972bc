"""`foretell changed`: which predictions moved between two versions."""

from foretell.cli.command import Edges, Given, command
from foretell.cli.output import print_answer, write_json
from foretell.specs.questions.versions import VersionsQuestion


@command(VersionsQuestion)
def version_changes(given: Given, edges: Edges) -> int:
    """Ask the questions of OLD.json again: which predictions moved, by how much, and by which change."""
    if edges.save:
        return _save(given, edges)
    from foretell.lab.versions.changes import version_changes as ask

    found = ask(**{"files": (), **given})
    return print_answer("changed", found.to_dict(), json=edges.json)


def _save(given: Given, edges: Edges) -> int:
    """Write a snapshot of this version."""
    import json

    from foretell.interop.user_files import write_whole
    from foretell.lab.versions.changes import STANDARD, read_snapshot, take_snapshot

    read = [read_snapshot(path) for path in given.get("files", ())]
    questions = [(one.verb, one.question) for old in read for one in old.predictions]
    made = take_snapshot(questions or STANDARD)
    text = json.dumps(made.to_dict(), allow_nan=False)
    write_whole(str(edges.save), f"{text}\n")
    if edges.json:
        write_json(
            {"foretell": made.version, "predictions": len(made.predictions), "file": edges.save}
        )
    else:
        print(f"{len(made.predictions)} predictions of {made.version} saved in {edges.save}")
    return 0
