"""Figures that the page has and the command line does not, built as all others are (report/figures): from the
JSON of answers to Plotly JSON.

    costs.py      what things cost, part by part
    lines.py      published runs beside ours
"""
