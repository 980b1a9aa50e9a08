#!/bin/sh
# usage: bench/cuda_check.sh [FLAGS OF octavo_bench.cuda]
# Builds the extension and the CUDA backend for this machine's GPU alone, then checks and measures everything, within
# six minutes. Needs python with torch, numpy and nanobind, nvcc, cmake and ninja; downloads nothing, installs nothing.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
build=${BUILD:-$root/build/cuda-check}
mkdir -p "$(dirname "$build")"
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(command -v "$python")" \
  -Dnanobind_DIR="$("$python" -c 'import nanobind; print(nanobind.cmake_dir())')" \
  -DOCTAVO_CUDA=on -DOCTAVO_CUDA_ARCHITECTURES="${ARCHITECTURES:-90}" -DOCTAVO_CUDA_EMULATOR=OFF > "$build.log" 2>&1 || {
  cat "$build.log"
  exit 1
}
timeout 150 ninja -C "$build" _engine octavo_cuda >> "$build.log" 2>&1 || {
  tail -n 40 "$build.log"
  exit 1
}
# A package of links: the sources' Python beside the libraries just built.
package=$build/package
mkdir -p "$package/octavo"
for file in "$root"/python/octavo/*; do
  case $file in *_engine*.so) ;; *) ln -sfn "$file" "$package/octavo/" ;; esac
done
for file in "$build"/engine/bind/*.so; do ln -sfn "$file" "$package/octavo/"; done
PYTHONPATH=$package:$root/bench exec "$python" -m octavo_bench.cuda --out "$build/cuda_check.json" "$@"
