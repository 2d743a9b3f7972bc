"""Real training beside its prediction.

    config      a matrix of points from a TOML file: models, plans, processes, batches
    models      the sizes of a model, the same as the record that predictions take, and the plans that run
    predict     what `foretell.estimate` says of a point: times, memory, every collective
    run         the supervisor: launches, keeps what is finished; whether the device is the one predicted
    launch      the folder of a run, and one launch: torchrun started, watched, ended
    worker      one process of it: trains point after point
    table       measured beside predicted, as Parquet
    traces/     traces of the profiler, or of `foretell simulate`, taken apart

torch is imported by worker and by what only it imports: modules (the decoder), shards (ZeRO), engine (a step,
and what it holds), recorder (clocks, process groups and their messages).
"""
