#!/bin/bash
# Prepare one instance of VNN-COMP: check its files, and load the libraries once, so that they are in the file cache.
#
#     prepare_instance.sh v1 CATEGORY NET.onnx PROPERTY.vnnlib
#
# Exit code 0: the instance can be run. Nothing is computed from its files here.
set -eu

if [ "${1:-}" != v1 ]; then
  echo "error: got version '${1:-}' of the interface, expected v1" >&2
  exit 1
fi
if [ $# -ne 4 ]; then
  echo "error: got $# arguments, expected 4: v1 CATEGORY NET.onnx PROPERTY.vnnlib" >&2
  exit 1
fi
for file in "$3" "$4"; do
  if [ ! -r "$file" ]; then
    echo "error: cannot read $file, expected a file of the benchmark" >&2
    exit 1
  fi
done
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PROOFMAP_PYTHON:-$root/.venv/bin/python}
"$python" -c "import onnxruntime, proofmap.bounds, proofmap.graph, proofmap.search.exact, proofmap.sources"
