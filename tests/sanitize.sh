#!/bin/sh
# Builds the engine with AddressSanitizer and UBSan into build/sanitize, apart from the normal build, and runs the
# tests with it. Called by `make test-sanitize`, which puts .venv/bin on PATH. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."

# An environment of its own, in which everything but octavo comes from .venv.
env=build/sanitize/venv
if [ ! -x "$env/bin/python" ]; then
  python -m venv --without-pip "$env"
  python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > "$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages.pth"
fi
"$env/bin/python" -m pip install --quiet --no-build-isolation --no-deps --force-reinstall \
  --config-settings=build-dir=build/sanitize/obj --config-settings=cmake.define.OCTAVO_SANITIZE=ON \
  --config-settings=cmake.define.OCTAVO_CUDA_EMULATOR=ON \
  --config-settings=install.strip=false .

# Python itself is not instrumented, so the runtime has to be loaded first, and libstdc++ with it: else the
# interceptor of __cxa_throw finds nothing to call. Leaks are not looked for: CPython and the packages around it
# keep memory until the process ends on purpose, and there is no telling theirs from ours.
preload="$(${CXX:-g++} -print-file-name=libasan.so) $(${CXX:-g++} -print-file-name=libstdc++.so)"
export ASAN_OPTIONS="detect_leaks=0:strict_init_order=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
# --capture=sys leaves the process's own stderr alone: a report is written there just before the process ends.
LD_PRELOAD="$preload" exec "$env/bin/python" -m pytest --sanitized --capture=sys --timeout 1800 -p no:cacheprovider "$@"
