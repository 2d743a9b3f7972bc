"""Conformance checks for authors of plug-ins: each raises AssertionError with what it found."""
