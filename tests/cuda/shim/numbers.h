// Conversions between f32 and the half types, to nearest even, as cvt.rn does; NaN becomes cvt's 0x7fff.
#pragma once

#include "state.h"

inline float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 as_bits(float x) { return __builtin_bit_cast(u32, x); }

inline float bf16_to_f32(u16 h) { return as_float(u32(h) << 16); }

inline u16 f32_to_bf16(float x) {
  u32 bits = as_bits(x);
  if (x != x) return 0x7fff;
  return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float f16_to_f32(u16 h) {
  u32 sign = u32(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return as_float(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    float x = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -x : x;
  }
  return as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

inline u16 f64_to_f16(double x) {
  u16 sign = __builtin_signbit(x) ? 0x8000 : 0;
  double magnitude = __builtin_fabs(x);
  if (x != x) return 0x7fff;
  if (magnitude >= 65520.0) return sign | 0x7c00;
  // Adding 2^52 units in the last place of the result rounds to them; the quotient is then a whole number.
  int exponent = magnitude < 0x1p-14 ? -14 : __builtin_ilogb(magnitude);
  double unit = __builtin_ldexp(1.0, exponent - 10), big = unit * 0x1p52;
  volatile double shifted = magnitude + big;
  u32 units = static_cast<u32>((shifted - big) / unit);
  // A carry out of the fraction moves into the exponent, as it must; below 2^-14 the exponent field is 0.
  u32 field = magnitude < 0x1p-14 ? 0 : static_cast<u32>(exponent + 15 - 1) << 10;
  return static_cast<u16>(sign | (field + units));
}

inline u16 f32_to_f16(float x) { return f64_to_f16(x); }

extern "C" float tlm_shim_f16_to_f32(unsigned short h) { return f16_to_f32(h); }
extern "C" float tlm_shim_bf16_to_f32(unsigned short h) { return bf16_to_f32(h); }
extern "C" unsigned short tlm_shim_f32_to_f16(float x) { return f32_to_f16(x); }
extern "C" unsigned short tlm_shim_f64_to_f16(double x) { return f64_to_f16(x); }
extern "C" unsigned short tlm_shim_f32_to_bf16(float x) { return f32_to_bf16(x); }
extern "C" unsigned tlm_shim_f32x2_to_f16x2(float high, float low) { return u32(f32_to_f16(high)) << 16 | f32_to_f16(low); }
extern "C" unsigned tlm_shim_f32x2_to_bf16x2(float high, float low) { return u32(f32_to_bf16(high)) << 16 | f32_to_bf16(low); }

// To nearest, ties away from zero, in the upper 19 bits.
extern "C" unsigned tlm_shim_f32_to_tf32(float x) {
  u32 bits = as_bits(x);
  if ((bits & 0x7f800000) == 0x7f800000) return x != x ? 0x7fffe000 : bits;
  return (bits + 0x1000) & ~0x1fffu;
}
