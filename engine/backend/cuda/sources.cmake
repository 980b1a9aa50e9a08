# Sources of the CUDA backend. They compile with nvcc into liboctavo_cuda.so and as host C++, against emulator/, into
# liboctavo_cuda_emulated.so.
set(OCTAVO_CUDA_HOST_SOURCES
  backend.cpp
  check.cpp
  device.cpp
  kv_pool.cpp
  memory.cpp
  queue.cpp
  repack.cpp
  steps.cpp
  weight.cpp
)
set(OCTAVO_CUDA_KERNEL_SOURCES
  attention.cu
  copy_blocks.cu
  elementwise.cu
  experts.cu
  prepare_input.cu
  product.cu
  product_bytes.cu
  product_dense.cu
  product_nibbles.cu
  product_super.cu
  rope_write.cu
  sampling.cu
)
list(TRANSFORM OCTAVO_CUDA_HOST_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM OCTAVO_CUDA_KERNEL_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

# target: a shared object that presents itself as backend `name`; its file lies beside the extension.
function(octavo_backend_plugin target name)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.cpp)
  target_compile_definitions(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:OCTAVO_BACKEND_NAME="${name}"> $<$<COMPILE_LANGUAGE:CXX>:OCTAVO_BACKEND_ABI="${OCTAVO_BACKEND_ABI}">)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/engine/bind)
  install(TARGETS ${target} LIBRARY DESTINATION octavo)
endfunction()
