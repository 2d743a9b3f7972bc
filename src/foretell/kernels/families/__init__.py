"""Seconds of kernels: one file per family, each a formula with the coefficients of a fitted surface."""
