"""Requests at an engine, played from event to event: who waits, who is in the batch, when tokens come."""
