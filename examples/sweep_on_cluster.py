"""A sweep on the workers of a Dask cluster: `python examples/sweep_on_cluster.py STUDY.toml OUT [WORKERS]`.

Here the cluster is processes of this machine. On another, only the cluster changes:

    from dask_jobqueue import SLURMCluster            # pip install dask-jobqueue
    cluster = SLURMCluster(queue="regular", cores=64, processes=64, memory="128GB", walltime="04:00:00",
                           job_script_prologue=["export POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1"])
    cluster.scale(jobs=16)                            # 1,024 workers

    from dask_kubernetes.operator import KubeCluster  # pip install dask-kubernetes
    cluster = KubeCluster(image="an image with foretell[sweep]", n_workers=256)
"""

import sys

from distributed import Client, LocalCluster

import foretell


def main(study: str, out: str, workers: int = 2) -> None:
    """Ask every point; what a folder has already is not asked again."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            env={"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        ) as cluster,
        Client(cluster) as client,
    ):
        executor = client.get_executor(pure=False)
        found = foretell.sweep(study, out=out, executor=executor, workers=workers, yes=True)
    print(f"{found.points_done:,} of {found.points:,} points in {found.shards_done} shards: {out}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2)
