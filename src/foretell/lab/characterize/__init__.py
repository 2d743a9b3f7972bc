"""Real training beside its prediction.

    config.py    a matrix of points from a TOML file: models, plans, processes, batches
    models.py    the sizes of a model, and the same as the record that predictions take
    predict.py   what `foretell.estimate` says of a point: times, memory, every collective
    run.py       the supervisor: launches, keeps what is finished
    launch.py    one launch: torchrun started, watched, ended
    worker.py    one process of it: trains point after point
    plans.py     the plans that a runner can train
    files.py     the folder of a run: one file for each point
    table.py     measured beside predicted, as Parquet
    devices.py   whether the device that ran is the one that was predicted
    traces/      traces of the profiler, or of `foretell simulate`, taken apart

torch is imported by worker.py and by what only it imports: modules.py (modules), shards.py (ZeRO),
engine.py (a step), recorder.py (clocks), groups.py (process groups), tensors.py (what is held).
"""
