"""Requests at an engine, simulated from event to event: who waits, who is in the batch, when tokens come."""
