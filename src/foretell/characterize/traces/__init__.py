"""What a trace of real training says, and the prediction of the same job beside it.

stream.py      events of a JSON file one by one, gzipped or not, in bounded memory
columns.py     what is kept of each, as columns
names.py       families of kernels, and collectives, by their names
intervals.py   unions and overlaps of spans of time, exact in nanoseconds
read.py        files to ranks: work, collectives, host, steps
breakdown.py   where the time of each step of each rank goes
ranks.py       what ranks wait for each other
beside.py      the prediction of the same job, row by row
run.py         `foretell characterize trace`
"""
