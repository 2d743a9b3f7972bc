"""Procurement: the best cluster of each kind for the money and the work, and whether that is certain.

clusters.py   how many chips a sum pays for over the years
workloads.py  what a cluster of each kind does with the work, and what may be wrong with that
compare.py    `compare`: the ranking
"""
