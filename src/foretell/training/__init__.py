"""One training step: what it takes and holds, in closed form for any number of plans."""
