"""Real training beside its prediction: the runner, and readers of traces (traces/)."""
