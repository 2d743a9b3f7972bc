"""Blocks with formulas of their own, one file each; `specs/block.py` says how they are found."""
