"""Serving: what a step of an engine takes, what its memory holds, and what users see of it."""
