"""Answers in notebooks and at a prompt: a short text, an HTML view and a data frame of each."""

from foretell.report.notebook.views import answer_frame as answer_frame
from foretell.report.notebook.views import answer_html as answer_html
from foretell.report.notebook.views import answer_text as answer_text
