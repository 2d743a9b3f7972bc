"""A process in the place of the one that trains: does to each point what the point's model is named after."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())

    def tell(what: str, **more: object) -> None:
        with Path(task["events"]).open("a") as file:
            file.write(json.dumps({"what": what, "rank": 0, "pid": os.getpid(), **more}) + "\n")

    tell("hello")
    for told in task["points"]:
        key, name = told["key"], told["point"]["model"]
        tell("start", key=key)
        match name:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                child = subprocess.Popen(["sleep", "600"])
                Path(task["out"], "child").write_text(f"{child.pid} {os.getpid()}")
                time.sleep(600.0)
            case "fails":
                tell("failed", key=key, why="ValueError: it went wrong")
                sys.exit(75)
            case "lacks":
                tell("lost", key=key, why="out of memory: 1 TB")
                continue
        found = {"key": key, "point": told["point"], "ranks": [], "environment": {}}
        Path(task["out"], "points", f"{key}.json").write_text(json.dumps(found))
        tell("done", key=key)
    tell("end")


main()
