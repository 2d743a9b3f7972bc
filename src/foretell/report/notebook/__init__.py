"""Answers in notebooks and at a prompt: a short text, an HTML view and a data frame of each.

card.py     a card: title, main numbers with intervals, a table, a breakdown
cards.py    what is worth showing of each verb's answer
views.py    a card as text and as HTML
frames.py   an answer as rows of a polars or pandas data frame
"""

from foretell.report.notebook.frames import answer_frame as answer_frame
from foretell.report.notebook.views import answer_html as answer_html
from foretell.report.notebook.views import answer_text as answer_text
