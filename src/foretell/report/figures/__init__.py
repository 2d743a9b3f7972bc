"""Figures as Plotly JSON: `{"data": [...], "layout": {...}}`, one file a kind of figure.

Each is a pure function from the JSON shapes of our answers (`to_dict()`), so that an HTML file, a picture,
a notebook and the page show the same figure. Nothing here needs the plotly package: a notebook shows one
with `plotly.graph_objects.Figure(figure)`.
"""
