# Decides whether liboctavo_cuda.so is built: OCTAVO_BUILD_CUDA, and CMAKE_CUDA_COMPILER where it is not on the PATH.
#   auto: where a CUDA compiler and an NVIDIA driver are found, for this machine's GPU alone. A machine without a GPU
#         installs as fast as if there were no CUDA.
#   on:   for OCTAVO_CUDA_ARCHITECTURES, with a system's toolkit or with the nvidia-* wheels; an error where neither is.
set(OCTAVO_CUDA auto CACHE STRING "Build the CUDA backend: auto, on or off")
set(OCTAVO_CUDA_ARCHITECTURES "" CACHE STRING "What the CUDA backend is compiled for; empty: 80, 89, 90 and PTX, or with auto this machine's GPU")
set(OCTAVO_BUILD_CUDA OFF)
string(TOLOWER "${OCTAVO_CUDA}" wanted)
if(NOT wanted MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "OCTAVO_CUDA must be auto, on or off, got ${OCTAVO_CUDA}")
endif()
if(wanted STREQUAL "off" OR (wanted STREQUAL "auto" AND NOT EXISTS /proc/driver/nvidia/version))
  return()
endif()

# The wheels' toolkit, of the Python that builds.
execute_process(COMMAND ${Python_EXECUTABLE} -c
  "import importlib.util as u; s = u.find_spec('nvidia.cu13'); print(s.submodule_search_locations[0])"
  OUTPUT_VARIABLE wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(DEFINED ENV{CUDACXX})
  set(OCTAVO_NVCC $ENV{CUDACXX} CACHE FILEPATH "The CUDA compiler")
elseif(wheels AND EXISTS ${wheels}/bin/nvcc)  # whoever installs it means it
  set(OCTAVO_NVCC ${wheels}/bin/nvcc CACHE FILEPATH "The CUDA compiler")
endif()
find_program(OCTAVO_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda/bin PATH_SUFFIXES bin DOC "The CUDA compiler")
if(NOT OCTAVO_NVCC)
  if(wanted STREQUAL "on")
    message(FATAL_ERROR "OCTAVO_CUDA=on needs a CUDA compiler: install a toolkit (nvcc on the PATH) or the extra "
      "octavo[cuda-build] with pip")
  endif()
  return()
endif()
set(OCTAVO_BUILD_CUDA ON)
if(NOT OCTAVO_CUDA_ARCHITECTURES)
  if(wanted STREQUAL "auto")
    set(OCTAVO_CUDA_ARCHITECTURES native)
  else()
    set(OCTAVO_CUDA_ARCHITECTURES 80-real 89-real 90-real 90-virtual)
  endif()
endif()
