"""Figures and pages of `foretell reproduce`, from the tables of lab/reproduce.

files.py    every figure as .svg, .html and .csv, and the page
page.py     the page of a work: figure by figure what agrees, what differs and why
nersc_2024.py and so on: the figures of one work
"""
