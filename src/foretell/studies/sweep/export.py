"""All shards of a sweep as one file, or what a query makes of them."""

from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import whole_file
from foretell.records import as_json, dataclass
from foretell.studies.sweep.run import _status, needs_polars
from foretell.studies.sweep.shards import read_folder, read_manifest

TABLE = "sweep"
"""What the results are called in a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFiles:
    """What was written."""

    out: str
    """The file."""
    rows: int
    """Its rows."""
    columns: tuple[str, ...]
    """Its columns."""
    complete: bool
    """Whether every point of the study is among what was read."""
    points: int
    """Points of the study."""
    points_done: int
    """Points that were read."""

    to_dict = as_json()


def results(folder: str | Path) -> Any:
    """The results as a polars LazyFrame, sorted by point; shards that are missing or corrupt are left out."""
    import polars as pl

    study, _ = read_manifest(Path(folder))
    whole = read_folder(Path(folder)).whole
    if not whole:
        from foretell.studies.sweep.frames import shard_frame

        return shard_frame(study, 0).clear().lazy()
    return pl.concat([pl.scan_parquet(whole[number]) for number in sorted(whole)])


def export(folder: str | Path, *, out: str | Path, sql: str | None = None) -> ExportedFiles:
    """Write the results to a .csv or .parquet file, rows sorted by point; `sql` asks the table `sweep`."""
    path = Path(out)
    kinds = (".csv", ".parquet")
    if path.suffix not in kinds:
        raise bad_input("out", str(out), "unknown kind", ", ".join(kinds))
    if path.is_dir() or not path.absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a file in a folder there is"
        raise bad_input("out", str(out), message, allowed)
    study, _ = read_manifest(Path(folder))
    needs_polars()
    table = results(folder)
    if sql is not None:
        table = _asked(table, sql)
    rows, columns = _written(table, path)
    now = _status(Path(folder), study)
    return ExportedFiles(
        out=str(path),
        rows=rows,
        columns=columns,
        complete=now.complete,
        points=now.points,
        points_done=now.points_done,
    )


def _asked(table: Any, sql: str) -> Any:
    """What a query makes of the results."""
    import polars as pl

    try:
        asked = pl.SQLContext({TABLE: table}).execute(sql)
        asked.collect_schema()
    except Exception as error:  # noqa: BLE001 - the parser has many kinds of its own
        said = str(error).split("\n\nResolved plan")[0].strip()
        message = f"cannot be answered: {said}"
        allowed = f'a query of the table {TABLE}, names with dots in double quotes: "plan.tp"'
        raise bad_input("sql", sql, message, allowed) from None
    return asked


def _written(table: Any, path: Path) -> tuple[int, tuple[str, ...]]:
    """Write under another name, then rename; rows and columns of the file."""
    import polars as pl

    try:
        with whole_file(path) as beside:
            if path.suffix == ".csv":
                table.sink_csv(beside, maintain_order=True)
            else:
                table.sink_parquet(beside, compression="zstd", maintain_order=True)
    except OSError:
        raise
    except pl.exceptions.PolarsError as error:
        raise bad_input("sql", None, f"cannot be answered: {str(error).splitlines()[0]}") from None
    except pl.exceptions.PanicException:
        # Only a file that was made to bear the hash of its damage gets here.
        message, allowed = "a shard is no table", "a folder that sweep wrote"
        raise bad_input("folder", None, message, allowed) from None
    read = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
    return int(read.select(pl.len()).collect().item()), tuple(table.collect_schema().names())
