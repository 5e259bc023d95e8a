"""Archives on other engines: Dask and Spark give the bits of the builtin `map`. Spark is installed by hand."""

import os
import sys

import dask
import pytest

import murk
from tests.learners.models.test_archives import model_of, world


def check(other, protocol):
    """Fit an archive with a `map` and with the builtin one."""
    _, path = world(protocol, 450)
    expected = murk.fit(model_of(protocol), archive=path)
    result = murk.fit(model_of(protocol), archive=path, map=other)
    assert result.report["state_digest"] == expected.report["state_digest"]
    assert {name: each.interval for name, each in result.coefficients.items()} == {
        name: each.interval for name, each in expected.coefficients.items()
    }


@pytest.mark.parametrize("protocol", ["moments", "scores"])
def test_dask_gives_the_same_bits(protocol):
    def tasks(learn, parts):
        return dask.compute(*[dask.delayed(learn)(part) for part in parts], scheduler="processes", num_workers=2)

    check(tasks, protocol)


def test_spark_gives_the_same_bits(monkeypatch):
    pyspark = pytest.importorskip("pyspark", reason="needs Spark: pip install pyspark, and Java 17")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    settings = pyspark.SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
    context = pyspark.SparkContext(conf=settings)
    try:
        check(lambda learn, parts: context.parallelize(parts, len(parts)).map(learn).collect(), "moments")
    finally:
        context.stop()
