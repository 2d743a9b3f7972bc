"""Coefficients from measurements."""
