"""The op graph: what a layer of each kind is made of."""
