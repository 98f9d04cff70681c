"""``sparklog spark``: what a cluster of Spark is given: jobs, a package for executors, arguments of spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sparklog.spark.shipping import Package

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Ship sparklog to a cluster of Spark, and start its jobs there.

    \b
      spark-submit "$(sparklog spark jobs)/maintain.py" --cluster s3://bucket/prefix
      sparklog spark package --out sparklog.tar.gz
      sparklog spark arguments --s3
    """


@spark.command()
def jobs() -> None:
    """Print the folder of the jobs: retention.py, compact.py, optimize.py, vacuum.py, maintain.py and ingest.py."""
    from sparklog.spark.shipping import jobs_folder

    click.echo(str(jobs_folder()))


@spark.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file: ….tar.gz for --archives, or ….zip for --py-files, in pure Python.",
)
@click.option(
    "--platform",
    metavar="PLATFORM",
    help="Of the executors, as pip names it: manylinux_2_28_aarch64. pip fetches wheels for it. By default as here.",
)
@click.option(
    "--python", metavar="VERSION", help="Of the executors: 3.12. By default this one, and nothing is fetched."
)
def package(out: Path, platform: str | None, python: str | None) -> None:
    """Make a file with sparklog and what it needs, for executors that have none of it.

    An archive has the native core, pyarrow, deltalake and obstore; Spark and Python itself are the cluster's.
    """
    from sparklog.spark.shipping import pack_archive, pack_py_files, submit_line

    if out.suffix == ".zip":
        if platform or python:
            raise click.UsageError("a .zip is pure Python: it has no --platform and no --python")
        made = pack_py_files(out)
    else:
        made = pack_archive(out, platform=platform, python=python)
    for line in _about(made):
        click.echo(line, err=True)
    click.echo(submit_line(made))


@spark.command()
@click.option("--s3", is_flag=True, help="Spark itself is to read and write tables on S3.")
@click.option("--gcs", is_flag=True, help="The same on Google Cloud Storage.")
@click.option("--adls", is_flag=True, help="The same on Azure Data Lake Storage Gen2.")
def arguments(s3: bool, gcs: bool, adls: bool) -> None:
    """Print the arguments by which spark-submit has Delta, and the connectors of clouds.

    For SQL views, read_topic, and ingests; jobs of maintenance and format("sparklog") need none of it.
    """
    from sparklog.spark.runtime.versions import usual_delta_package
    from sparklog.spark.session.connector import log_store_jar, submit_arguments
    from sparklog.spark.session.storage_access import asked_connectors

    connectors = asked_connectors({"s3": s3, "gcs": gcs, "adls": adls}, None)
    jar = log_store_jar() if connectors else None
    click.echo(submit_arguments(connectors, jar, delta=usual_delta_package()))


def _about(made: Package) -> list[str]:
    size = f"{made.path}: {made.size_bytes / 1e6:.0f} MB" if made.size_bytes >= 1_000_000 else f"{made.path}"
    if made.path.suffix == ".zip":
        return [
            f"{size}, for any Python: pure Python, as a zip can't hold the native core; numpy, pyarrow, deltalake, and "
            "obstore for a cloud, must be in the Python of the executors"
        ]
    core = "with the native core" if made.has_core else "in pure Python: this installation has no core for it"
    return [f"{size}, for Python {made.python} on {made.platform}, {core}"]
