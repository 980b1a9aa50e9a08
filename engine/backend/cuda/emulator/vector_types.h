#pragma once
// CUDA's built-in vector types with their sizes and alignments.

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define OCTAVO_VECTOR_TYPES(name, type)                                                       \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                    \
  struct name##3 { type x, y, z; };                                                           \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                 \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

OCTAVO_VECTOR_TYPES(char, signed char)
OCTAVO_VECTOR_TYPES(uchar, unsigned char)
OCTAVO_VECTOR_TYPES(short, short)
OCTAVO_VECTOR_TYPES(ushort, unsigned short)
OCTAVO_VECTOR_TYPES(int, int)
OCTAVO_VECTOR_TYPES(uint, unsigned)
OCTAVO_VECTOR_TYPES(longlong, long long)
OCTAVO_VECTOR_TYPES(ulonglong, unsigned long long)
OCTAVO_VECTOR_TYPES(float, float)
OCTAVO_VECTOR_TYPES(double, double)
#undef OCTAVO_VECTOR_TYPES
