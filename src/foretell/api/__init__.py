"""One file per verb, question to answer: the only place that joins engines."""
