"""The request simulator for a compiler: the same events on arrays, for plain rules and many requests.

    jit.py         numba's compiler where it is installed (`pip install "foretell[fast]"`), else plain Python
    state.py       arrays of requests and replicas
    heaps.py       heaps and trees on arrays
    clock.py       what steps take, from the tables of a `SampledClock`
    engine.py      one replica, as `replica.Replica`
    loop.py        all replicas, as the loop of `run`
    play.py        when it pays, and the way in and out

`replica.py` and `run.py` are the reference; tests hold the two equal.
"""
