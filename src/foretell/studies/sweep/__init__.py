"""Sweeps: a study's points asked on one core or many, kept in shards that outlive the run.

columns.py    what columns a study's results have
questions.py  the question of one point, and its answer as a row
batches.py    points that differ in the plan's numbers alone, evaluated together
frames.py     the points of one shard as a table
shards.py     tables on disk, each named after its content
executors.py  where shards are computed: here, on processes, on Dask
run.py        `sweep`, `resume`, `status`
export.py     all shards as one file, or what a query makes of them
mix.py        a mix of workloads as one answer for each point, and the points that no other beats
codesign.py   `codesign`: a sweep and its front
trials.py     points that Optuna asks, kept so that a killed run goes on
optimise.py   `optimise`: trials, batch by batch
"""
