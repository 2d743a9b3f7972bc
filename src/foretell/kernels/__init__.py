"""Seconds and bytes of operations on a chip."""
