"""Frozen records: the nouns of Foretell."""
