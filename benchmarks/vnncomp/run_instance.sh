#!/bin/bash
# Decide one instance of VNN-COMP, and write the answer into a file.
#
#     run_instance.sh v1 CATEGORY NET.onnx PROPERTY.vnnlib RESULT.txt SECONDS
#
# The first line of RESULT.txt is sat, unsat, unknown, timeout or error. After sat, the counterexample follows, as
# ((X_0 0.5) ... (Y_0 1.0)). Exit code 0: there is an answer, whatever it is.
#
# PROOFMAP_PYTHON names another interpreter than that of .venv, and PROOFMAP_DEVICE another device than cuda, which is
# used if the machine has a GPU.
set -u

if [ "${1:-}" != v1 ]; then
  echo "error: got version '${1:-}' of the interface, expected v1" >&2
  exit 1
fi
if [ $# -ne 6 ]; then
  echo "error: got $# arguments, expected 6: v1 CATEGORY NET.onnx PROPERTY.vnnlib RESULT.txt SECONDS" >&2
  exit 1
fi
category=$2 network=$3 property=$4 result=$5 seconds=$6
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PROOFMAP_PYTHON:-$root/.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

device=${PROOFMAP_DEVICE:-}
if [ -z "$device" ]; then
  device=cpu
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    device=cuda
  fi
fi
case $network in
  *.gz)
    gzip -dc -- "$network" > "$folder/net.onnx" || { echo error > "$result"; exit 0; }
    network=$folder/net.onnx
    ;;
esac

# The search starts after the start-up and the first bounds, so it gets a part of the time.
search=$(awk -v s="$seconds" 'BEGIN { t = 0.9 * s - 5; if (t < 0.5 * s) t = 0.5 * s; print t }')
timeout --signal=TERM --kill-after=2 "$seconds" "$python" -W ignore -m proofmap verify "$network" "$property" \
  --bounds exact --seconds "$search" --device "$device" --out "$folder/points" --result "$folder/result.txt"
code=$?

# Exit codes of proofmap: 0 the property holds, 1 it is violated or not decided, 2 wrong input. Of timeout: 124 or 137.
if [ -s "$folder/result.txt" ]; then
  cp "$folder/result.txt" "$result"
elif [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
  echo timeout > "$result"
else
  echo "error: proofmap ended with code $code for $category" >&2
  echo error > "$result"
fi
