"""Many plans: the space of candidates, their evaluation in batches, and the ranking."""
