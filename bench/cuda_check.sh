#!/bin/sh
# usage: bench/cuda_check.sh [FLAGS OF octavo_bench.cuda]
# Builds the extension and the CUDA backend for this machine's GPU alone, then checks and measures everything, within
# six minutes. Needs python with torch, numpy and nanobind, nvcc, cmake and ninja; downloads nothing, installs nothing.
set -eu
begin=$(date +%s)
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
build=${BUILD:-$root/build/cuda-check}
out=$build/cuda_check.json
mkdir -p "$build"
# Ends the check where there is nothing to run: what failed, in the one line of the result.
give_up() {
  tail -n 60 "$build.log"
  printf '[{"part": "build", "kind": "check", "name": "%s", "ok": false, "value": null, "unit": "", "goal": null}]\n' \
    "$1" > "$out"
  echo "WRONG  build  $1"
  exit 1
}
timeout 60 cmake -G Ninja -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release \
  -DPython_EXECUTABLE="$(command -v "$python")" \
  -Dnanobind_DIR="$("$python" -c 'import nanobind; print(nanobind.cmake_dir())')" \
  -DOCTAVO_CUDA=on -DOCTAVO_CUDA_ARCHITECTURES="${ARCHITECTURES:-90}" -DOCTAVO_CUDA_EMULATOR=OFF \
  > "$build.log" 2>&1 || give_up "cmake ended with status $?"
# -k 0: every error that there is, not only the first.
timeout 150 ninja -k 0 -C "$build" _engine octavo_cuda >> "$build.log" 2>&1 || give_up "ninja ended with status $?"
# A package of links: the sources' Python beside the libraries just built.
package=$build/package
mkdir -p "$package/octavo"
for file in "$root"/python/octavo/*; do
  case $file in */_engine*) ;; *) ln -sfn "$file" "$package/octavo/" ;; esac
done
for file in "$build"/engine/bind/*.so; do ln -sfn "$file" "$package/octavo/"; done
took=$(($(date +%s) - begin))
echo "built in $took s"
PYTHONPATH=$package:$root/bench exec "$python" -m octavo_bench.cuda --out "$out" --seconds $((350 - took)) "$@"
