"""Which replica a request goes to."""

from collections.abc import Sequence

import numpy as np

from foretell.serving.requests.records import Requests, Routing
from foretell.serving.requests.replica import Replica

WARM_SHARE, WARM_MORE = 1.5, 4
"""A warm cache is worth a queue half as long again, and a few more."""


class Router:
    """Deals requests to replicas; it keeps the load of each, so that a thousand are looked at in one pass."""

    def __init__(self, routing: Routing, requests: Requests, replicas: Sequence[Replica]) -> None:
        self.routing, self.requests = routing, requests
        self.by_index = {replica.index: replica for replica in replicas}
        self.loads = np.zeros(len(replicas), np.int64)
        """Requests at each, by its index."""
        self.turn = 0
        self.homes: dict[int, int] = {}
        """Session -> the replica that its requests stay on."""
        self.by_load = routing != "round-robin"

    def note(self, replica: Replica) -> None:
        """A replica has more or fewer requests."""
        if self.by_load:
            self.loads[replica.index] = replica.load

    def choose(self, request: int, replicas: Sequence[Replica]) -> Replica:
        """The replica of a request, of some whose indices follow one another or of those that run."""
        match self.routing:
            case "round-robin":
                self.turn += 1
                return replicas[(self.turn - 1) % len(replicas)]
            case "prefix-aware":
                return self._warm(request, replicas)
            case "sticky" if self.requests.session is not None:
                name = self.requests.session[request]
                own = self.by_index.get(self.homes.get(name, -1))
                chosen = own if own is not None and own in replicas else self._least(replicas)
                self.homes[name] = chosen.index
                return chosen
            case _:
                return self._least(replicas)

    def _of(self, replicas: Sequence[Replica]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first, last = replicas[0].index, replicas[-1].index
        if last - first + 1 == len(replicas):
            return self.loads[first : last + 1]
        return self.loads[[replica.index for replica in replicas]]

    def _least(self, replicas: Sequence[Replica]) -> Replica:
        return replicas[int(self._of(replicas).argmin())]

    def _warm(self, request: int, replicas: Sequence[Replica]) -> Replica:
        loads = self._of(replicas)
        near = np.flatnonzero(loads <= WARM_SHARE * loads.min() + WARM_MORE)
        warm = [i for i in near.tolist() if replicas[i].prefixes.has(request, self.requests)]
        if not warm:
            return self._least(replicas)
        return replicas[min(warm, key=lambda i: loads[i])]
