"""Texts, files, flags and overrides to records; every problem at once."""
