"""What a trace of real training says, and the prediction of the same job beside it.

stream.py        events of a JSON file one by one, gzipped or not, in bounded memory
columns.py       what is kept of each, as columns
names.py         families of kernels, and collectives, by their names
read.py          files to ranks, each by what it was made on:
  device.py        an accelerator (Kineto)
  host.py          a CPU with gloo (Kineto)
  own.py           `foretell simulate`
  collectives.py   what is known of a collective
rank_trace.py    a rank: work, collectives, copies, host, steps
intervals.py     unions and overlaps of spans of time, exact in nanoseconds
breakdown.py     where the time of each step of each rank goes
ranks.py         what ranks wait for each other
prediction.py     the prediction of the same job, taken apart alike
beside.py        both, row by row
run.py           `foretell characterize trace`
"""
