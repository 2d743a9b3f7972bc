"""Measuring, fitting, scoring, and the published models."""
