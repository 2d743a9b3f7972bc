"""Reading and writing what other programs use: model configs, plans, traces."""
