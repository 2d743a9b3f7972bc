"""What a trace of real training says, and the prediction of the same job beside it.

columns         events of a JSON file one by one, gzipped or not, in bounded memory; what is kept of each
names           families of kernels and collectives by their names, and the bytes of messages
rank_trace      a rank: work, collectives, copies, host, steps; unions and overlaps of spans of time, exact in
                nanoseconds
device, read    files to ranks: of an accelerator; of a CPU with gloo, and of `foretell simulate`
breakdown       where the time of each step of each rank goes
share_rows      what ranks wait for each other; the prediction of the same job, and both row by row
run             `foretell characterize trace`
logs            text logs of DeepSpeed and Megatron as steps
"""
