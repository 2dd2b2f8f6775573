#!/usr/bin/env bash
# Remove files from virtual environment $1 that Penstock never reads: jars and modules of Spark's other parts, libraries of PyArrow for
# other protocols, C headers, tests of packages, and translations of the tools that build the guide.
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
rm -rf {pandas,pyarrow,datastore}/tests numpy/{tests,*/tests} pyspark/{examples,ml,mllib,pandas}
rm -rf {pyarrow,numpy/_core}/include pyarrow/{libarrow_flight,_flight}* pyarrow/src
rm -rf sphinx/locale/*/LC_MESSAGES
[ ! -d babel/locale-data ] || find babel/locale-data -name '*.dat' ! -name 'en*' ! -name root.dat -delete
