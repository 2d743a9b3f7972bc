"""How a model scales: strategies over numbers of chips, what the time goes to, and where it stops.

run.py evaluates any models on any system; study.py is the study of Cheng et al. (SIGMETRICS 2024) with the
open measurements that are beside it (published.py).
"""
