"""One file per parallelism: graph, degree -> what one rank holds, does and sends."""
