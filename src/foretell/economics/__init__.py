"""Money: wafers, dies, packages, servers, fabrics, buildings and years, each as a tree that sums."""
