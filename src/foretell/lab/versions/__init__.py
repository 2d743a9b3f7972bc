"""Predictions of two versions side by side: which moved, by how much, and by which change.

snapshot.py   predictions with all that they depend on, as a file; saved answers read as one
changes.py    the same questions asked again: what moved, part by part, and what changed of its inputs
"""
