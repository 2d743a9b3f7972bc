"""PyTorch modules as graphs of operations: the records, their file, and the tracer (torch is optional)."""
