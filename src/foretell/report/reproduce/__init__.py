"""Figures and pages of `foretell reproduce`, from the tables of lab/reproduce.

files               every figure as .svg, .html and .csv, and the page of a work: figure by figure what
                    agrees, what differs and why
traces              lines, bars, panels and axes that figures share
nersc_2024 and so on    the figures of one work
"""
