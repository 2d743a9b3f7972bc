"""Answers for people to read: records in, text and tables out."""
