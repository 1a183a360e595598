#!/bin/bash
# Set up Proofmap for VNN-COMP: make the environment .venv of this checkout.
#
#     install_tool.sh v1
set -eu

if [ "${1:-}" != v1 ]; then
  echo "error: got version '${1:-}' of the interface, expected v1" >&2
  exit 1
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
make -C "$root" .venv/installed
