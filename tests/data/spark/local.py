"""A Spark session on this machine, shared by the tests that need one."""

import functools
import os
import sys
import warnings


@functools.cache
def session():
    """Start Spark with two tasks at a time, each tried up to four times."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    made = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.driver.host", "localhost")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made
