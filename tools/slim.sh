#!/usr/bin/env bash
# Remove files from virtual environment $1 that Penstock never reads: jars of Spark's other parts, and tests of packages.
# The tests of the pipeline run without them. Jars for clusters (YARN, Kubernetes) stay.
set -euo pipefail
cd "$1"/lib/python3*/site-packages

unused_jars=(
  connect-repl spark-connect_ spark-repl_ scala-compiler jline                           # interactive shells, Spark Connect
  rocksdbjni                                                                             # state of stateful queries
  spark-mllib spark-graphx breeze spire cats-kernel algebra_ lapack blas arpack JTransforms # machine learning
  spark-hive hive-exec hive-metastore hive-common hive-serde hive-beeline hive-cli hive-jdbc hive-llap hive-shims hive-service
  derby datanucleus
)
for name in "${unused_jars[@]}"; do rm -rf pyspark/jars/"$name"*; done
rm -rf {pandas,pyarrow,datastore}/tests
