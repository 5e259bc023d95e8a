#!/bin/sh
# Starts murk in a container. The image holds compiled kernels, and numba wants the folder of its cache writable:
# so they are copied to where this container may write, which is quicker than compiling them.
set -eu
mkdir -p "$NUMBA_CACHE_DIR"
cp -R "$MURK_KERNELS/." "$NUMBA_CACHE_DIR"
exec murk "$@"
