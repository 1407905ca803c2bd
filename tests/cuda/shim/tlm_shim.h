// CUDA C on the CPU: what a header-free kernel text needs to be compiled by g++ and run by runtime.cpp, a fiber a thread.
//
// A kernel is plain CUDA C. What needs inline assembly on a GPU is a small wrapper in the text,
//     __device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
//     #ifdef __CUDACC_RTC__
//       asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(...), "l"(global));
//     #else
//       tlm_shim_cp_async_16(shared, global);
//     #endif
//     }
// where shared addresses stay ordinary pointers on this side (no conversion to the 32-bit shared window).
//
// Asynchronous copies, global to shared; `bytes` below the size reads only so many and fills the rest with zeros:
//     tlm_shim_cp_async_4 / _8 / _16(void* shared, const void* global, int bytes = size)
//     tlm_shim_cp_async_commit()            cp.async.commit_group
//     tlm_shim_cp_async_wait<N>()           cp.async.wait_group N
//     tlm_shim_cp_async_wait_all()          cp.async.wait_all
//
// Matrices of 8x8 16-bit elements from shared memory (ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16), d[0..N):
//     tlm_shim_ldmatrix_x1 / _x2 / _x4 / _x1_trans / _x2_trans / _x4_trans(unsigned* d, const void* row)
//     Lanes 8i..8i+7 give the 16-byte rows 0..7 of matrix i (the row pointers of other lanes are ignored).
//     With g = lane / 4 and t = lane % 4, d[i] holds (low half first) M[g][2t], M[g][2t+1]; .trans: M[2t][g], M[2t+1][g].
//
// Matrix products D = A * B + C of a warp (mma.sync.aligned.<shape>.row.col.f32.<type>.<type>.f32), C and D may be one:
//     tlm_shim_mma_m16n8k16_bf16 / _f16(float* d, const unsigned* a, const unsigned* b, const float* c)   a[4], b[2]
//     tlm_shim_mma_m16n8k8_bf16 / _f16(...)                                                               a[2], b[1]
//     tlm_shim_mma_m16n8k8_tf32(...)                                                                      a[4], b[2]
//     tlm_shim_mma_m16n8k4_tf32(...)                                                                      a[2], b[1]
//     with g = lane / 4, t = lane % 4, a pair being two 16-bit elements in one register, the lower column or row low:
//     c[0] (g, 2t)   c[1] (g, 2t+1)   c[2] (g+8, 2t)   c[3] (g+8, 2t+1)                    C and D are 16x8, d the same
//     16-bit A 16xK: a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  and for k16  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)
//     16-bit B Kx8:  b[0] (2t..2t+1, g)                    and for k16  b[1] (2t+8.., g)
//     tf32 A 16xK:   a[0] (g, t)  a[1] (g+8, t)            and for k8   a[2] (g, t+4)  a[3] (g+8, t+4)
//     tf32 B Kx8:    b[0] (t, g)                           and for k8   b[1] (t+4, g)
//     (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"). tf32 reads the upper 19 bits of each register.
//
// Matrix products of a warpgroup, 128 threads (wgmma.mma_async.sync.aligned.m64nNk16.f32.<type>.<type>), added to d[0..N/2):
//     tlm_shim_wgmma_bf16 / _f16(int n, float* d, unsigned long long a, unsigned long long b, int trans_a, int trans_b)
//     with w = warp of the group, g = lane / 4, t = lane % 4: d[4j + 2h + i] is (16w + 8h + g, 8j + 2t + i); a and b are
//     matrix descriptors, whose start addresses are tlm_shim_shared_address(const void*)
//     tlm_shim_wgmma_fence(), tlm_shim_wgmma_commit(), tlm_shim_wgmma_wait<N>()
//     tlm_shim_fence_proxy_async()          fence.proxy.async.shared::cta
//
// Vectors of half types are ushort2, ushort4, uint2 and uint4 (structs of the text's own may be taken apart by the compiler).
// Half types are stored as unsigned short; conversions round to nearest even, as cvt.rn does:
//     float tlm_shim_f16_to_f32(unsigned short)      unsigned short tlm_shim_f32_to_f16(float), tlm_shim_f64_to_f16(double)
//     float tlm_shim_bf16_to_f32(unsigned short)     unsigned short tlm_shim_f32_to_bf16(float)
//     unsigned tlm_shim_f32x2_to_f16x2 / _bf16x2(float high, float low)      cvt.rn.f16x2.f32 d, high, low
//     unsigned tlm_shim_f32_to_tf32(float)           cvt.rna.tf32.f32
#pragma once

#include "tlm_shim_operations.h"

typedef __SIZE_TYPE__ size_t;

#define __global__ __attribute__((noinline))
#define __device__ __attribute__((always_inline))
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
// Blocks run one after the other, so one copy serves; the section gives the bounds of all static shared memory.
#define __shared__ static __attribute__((section("tlm_static_shared")))
#define TLM_SHIM_INLINE static inline __attribute__((always_inline))

// ---- indices: constant within a thread, so the compiler may keep them in registers

struct dim3 {
  unsigned x, y, z;
};
extern "C" {
__attribute__((const)) unsigned tlm_shim_thread(int axis);
__attribute__((const)) unsigned tlm_shim_block(int axis);
__attribute__((const)) unsigned tlm_shim_block_size(int axis);
__attribute__((const)) unsigned tlm_shim_grid_size(int axis);
}
#define TLM_SHIM_INDEX(of) \
  (dim3{tlm_shim_##of(0), tlm_shim_##of(1), tlm_shim_##of(2)})
#define threadIdx TLM_SHIM_INDEX(thread)
#define blockIdx TLM_SHIM_INDEX(block)
#define blockDim TLM_SHIM_INDEX(block_size)
#define gridDim TLM_SHIM_INDEX(grid_size)
#define warpSize 32

// ---- vectors, with CUDA's alignments

// A copy is one access of the whole: the compiler must not take it apart, else its alignment and cost were not seen.
typedef unsigned TlmShimRaw16 __attribute__((vector_size(16), may_alias));
typedef unsigned long long TlmShimRaw8 __attribute__((may_alias));
typedef unsigned TlmShimRaw4 __attribute__((may_alias));
typedef unsigned short TlmShimRaw2 __attribute__((may_alias));
#define TLM_SHIM_COPIES(name, bytes)                                                               \
  name() = default;                                                                                \
  __device__ name(const name& o) { *(TlmShimRaw##bytes*)this = *(const TlmShimRaw##bytes*)&o; }    \
  __device__ name& operator=(const name& o) {                                                      \
    *(TlmShimRaw##bytes*)this = *(const TlmShimRaw##bytes*)&o;                                     \
    return *this;                                                                                  \
  }
#define TLM_SHIM_PAIR(type, name, bytes)                                                           \
  struct __align__(bytes) name {                                                                   \
    type x, y;                                                                                     \
    __device__ constexpr name(type a, type b) : x(a), y(b) {}                                      \
    TLM_SHIM_COPIES(name, bytes)                                                                   \
  };                                                                                               \
  TLM_SHIM_INLINE name make_##name(type x, type y) { return name(x, y); }
#define TLM_SHIM_QUAD(type, name, bytes)                                                           \
  struct __align__(bytes) name {                                                                   \
    type x, y, z, w;                                                                               \
    __device__ constexpr name(type a, type b, type c, type d) : x(a), y(b), z(c), w(d) {}          \
    TLM_SHIM_COPIES(name, bytes)                                                                   \
  };                                                                                               \
  TLM_SHIM_INLINE name make_##name(type x, type y, type z, type w) { return name(x, y, z, w); }
TLM_SHIM_PAIR(signed char, char2, 2)
TLM_SHIM_QUAD(signed char, char4, 4)
TLM_SHIM_PAIR(unsigned char, uchar2, 2)
TLM_SHIM_QUAD(unsigned char, uchar4, 4)
TLM_SHIM_PAIR(short, short2, 4)
TLM_SHIM_QUAD(short, short4, 8)
TLM_SHIM_PAIR(unsigned short, ushort2, 4)
TLM_SHIM_QUAD(unsigned short, ushort4, 8)
TLM_SHIM_PAIR(int, int2, 8)
TLM_SHIM_QUAD(int, int4, 16)
TLM_SHIM_PAIR(unsigned, uint2, 8)
TLM_SHIM_QUAD(unsigned, uint4, 16)
TLM_SHIM_PAIR(long long, longlong2, 16)
TLM_SHIM_PAIR(unsigned long long, ulonglong2, 16)
TLM_SHIM_PAIR(float, float2, 8)
TLM_SHIM_QUAD(float, float4, 16)
TLM_SHIM_PAIR(double, double2, 16)
struct float3 { float x, y, z; };
TLM_SHIM_INLINE float3 make_float3(float x, float y, float z) { return {x, y, z}; }

// ---- barriers, fences, warp operations

extern "C" {
int tlm_shim_barrier(int kind, int predicate);
void tlm_shim_fence();
unsigned tlm_shim_active_mask();
unsigned tlm_shim_vote(int kind, unsigned mask, int predicate);
unsigned long long tlm_shim_shuffle(int kind, unsigned mask, unsigned long long bits, int lane, int width);
}
#define __syncthreads() ((void)tlm_shim_barrier(TLM_SHIM_PLAIN, 0))
#define __syncthreads_count(p) tlm_shim_barrier(TLM_SHIM_COUNT, p)
#define __syncthreads_and(p) tlm_shim_barrier(TLM_SHIM_AND, p)
#define __syncthreads_or(p) tlm_shim_barrier(TLM_SHIM_OR, p)
#define __threadfence() tlm_shim_fence()
#define __threadfence_block() tlm_shim_fence()
#define __activemask() tlm_shim_active_mask()
TLM_SHIM_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { tlm_shim_vote(TLM_SHIM_SYNC, mask, 0); }
TLM_SHIM_INLINE unsigned __ballot_sync(unsigned mask, int p) { return tlm_shim_vote(TLM_SHIM_BALLOT, mask, p); }
TLM_SHIM_INLINE int __any_sync(unsigned mask, int p) { return tlm_shim_vote(TLM_SHIM_ANY, mask, p); }
TLM_SHIM_INLINE int __all_sync(unsigned mask, int p) { return tlm_shim_vote(TLM_SHIM_ALL, mask, p); }

template <int bytes> struct TlmShimBits { typedef unsigned long long type; };
template <> struct TlmShimBits<4> { typedef unsigned type; };
template <> struct TlmShimBits<2> { typedef unsigned short type; };
template <> struct TlmShimBits<1> { typedef unsigned char type; };
template <class T> TLM_SHIM_INLINE T tlm_shim_shuffled(int kind, unsigned mask, T value, int lane, int width) {
  typedef typename TlmShimBits<sizeof(T)>::type Bits;
  return __builtin_bit_cast(T, (Bits)tlm_shim_shuffle(kind, mask, __builtin_bit_cast(Bits, value), lane, width));
}
#define TLM_SHIM_SHUFFLE(name, kind, type)                                                                 \
  template <class T> TLM_SHIM_INLINE T name(unsigned mask, T value, type lane, int width = 32) {           \
    return tlm_shim_shuffled(kind, mask, value, (int)lane, width);                                         \
  }
TLM_SHIM_SHUFFLE(__shfl_sync, TLM_SHIM_INDEXED, int)
TLM_SHIM_SHUFFLE(__shfl_up_sync, TLM_SHIM_UP, unsigned)
TLM_SHIM_SHUFFLE(__shfl_down_sync, TLM_SHIM_DOWN, unsigned)
TLM_SHIM_SHUFFLE(__shfl_xor_sync, TLM_SHIM_XOR, int)

// ---- atomics (relaxed, device scope)

#define TLM_SHIM_ATOMIC(type) \
  type atomicAdd(type* p, type v); type atomicExch(type* p, type v); type atomicMax(type* p, type v); \
  type atomicMin(type* p, type v); type atomicCAS(type* p, type expected, type v);
TLM_SHIM_ATOMIC(int)
TLM_SHIM_ATOMIC(unsigned)
TLM_SHIM_ATOMIC(unsigned long long)
float atomicAdd(float* p, float v);
double atomicAdd(double* p, double v);
float atomicExch(float* p, float v);

// ---- what replaces inline assembly; documented at the top

extern "C" {
void tlm_shim_cp_async(void* shared, const void* global, int size, int bytes);
void tlm_shim_cp_async_commit();
void tlm_shim_cp_async_wait_group(int pending);
void tlm_shim_cp_async_wait_all();
void tlm_shim_ldmatrix(unsigned* d, const void* row, int count, int transposed);
void tlm_shim_mma(int shape, float* d, const unsigned* a, const unsigned* b, const float* c);
void tlm_shim_fence_proxy_async();
unsigned tlm_shim_shared_address(const void* pointer);
void tlm_shim_wgmma_fence();
void tlm_shim_wgmma(int half, int columns, float* sums, unsigned long long left, unsigned long long right, int turned);
void tlm_shim_wgmma_commit();
void tlm_shim_wgmma_wait_group(int pending);
float tlm_shim_f16_to_f32(unsigned short h);
float tlm_shim_bf16_to_f32(unsigned short h);
unsigned short tlm_shim_f32_to_f16(float x);
unsigned short tlm_shim_f64_to_f16(double x);
unsigned short tlm_shim_f32_to_bf16(float x);
unsigned tlm_shim_f32x2_to_f16x2(float high, float low);
unsigned tlm_shim_f32x2_to_bf16x2(float high, float low);
unsigned tlm_shim_f32_to_tf32(float x);
}
#define TLM_SHIM_CP_ASYNC(size) \
  TLM_SHIM_INLINE void tlm_shim_cp_async_##size(void* shared, const void* global, int bytes = size) { \
    tlm_shim_cp_async(shared, global, size, bytes); \
  }
TLM_SHIM_CP_ASYNC(4)
TLM_SHIM_CP_ASYNC(8)
TLM_SHIM_CP_ASYNC(16)
template <int pending> TLM_SHIM_INLINE void tlm_shim_cp_async_wait() { tlm_shim_cp_async_wait_group(pending); }

#define TLM_SHIM_LDMATRIX(name, count, transposed) \
  TLM_SHIM_INLINE void tlm_shim_ldmatrix_##name(unsigned* d, const void* row) { \
    tlm_shim_ldmatrix(d, row, count, transposed); \
  }
TLM_SHIM_LDMATRIX(x1, 1, 0)
TLM_SHIM_LDMATRIX(x2, 2, 0)
TLM_SHIM_LDMATRIX(x4, 4, 0)
TLM_SHIM_LDMATRIX(x1_trans, 1, 1)
TLM_SHIM_LDMATRIX(x2_trans, 2, 1)
TLM_SHIM_LDMATRIX(x4_trans, 4, 1)

#define TLM_SHIM_MMA(name, shape) \
  TLM_SHIM_INLINE void tlm_shim_mma_##name(float* d, const unsigned* a, const unsigned* b, const float* c) { \
    tlm_shim_mma(shape, d, a, b, c); \
  }
TLM_SHIM_MMA(m16n8k16_bf16, TLM_SHIM_K16_BF16)
TLM_SHIM_MMA(m16n8k16_f16, TLM_SHIM_K16_F16)
TLM_SHIM_MMA(m16n8k8_bf16, TLM_SHIM_K8_BF16)
TLM_SHIM_MMA(m16n8k8_f16, TLM_SHIM_K8_F16)
TLM_SHIM_MMA(m16n8k8_tf32, TLM_SHIM_K8_TF32)
TLM_SHIM_MMA(m16n8k4_tf32, TLM_SHIM_K4_TF32)

#define TLM_SHIM_WGMMA(name, half) \
  TLM_SHIM_INLINE void tlm_shim_wgmma_##name( \
      int n, float* d, unsigned long long a, unsigned long long b, int trans_a, int trans_b) { \
    tlm_shim_wgmma(half, n, d, a, b, trans_a | trans_b << 1); \
  }
TLM_SHIM_WGMMA(bf16, 0)
TLM_SHIM_WGMMA(f16, 1)
template <int pending> TLM_SHIM_INLINE void tlm_shim_wgmma_wait() { tlm_shim_wgmma_wait_group(pending); }

// ---- arithmetic that NVRTC knows without a header

#define TLM_SHIM_MATH1(name) \
  extern "C" float name##f(float); extern "C" double name(double); \
  TLM_SHIM_INLINE float name(float x) { return name##f(x); }
#define TLM_SHIM_MATH2(name) \
  extern "C" float name##f(float, float); extern "C" double name(double, double); \
  TLM_SHIM_INLINE float name(float x, float y) { return name##f(x, y); }
TLM_SHIM_MATH1(exp) TLM_SHIM_MATH1(exp2) TLM_SHIM_MATH1(expm1) TLM_SHIM_MATH1(log) TLM_SHIM_MATH1(log2)
TLM_SHIM_MATH1(log10) TLM_SHIM_MATH1(log1p) TLM_SHIM_MATH1(sqrt) TLM_SHIM_MATH1(cbrt) TLM_SHIM_MATH1(sin)
TLM_SHIM_MATH1(cos) TLM_SHIM_MATH1(tan) TLM_SHIM_MATH1(asin) TLM_SHIM_MATH1(acos) TLM_SHIM_MATH1(atan)
TLM_SHIM_MATH1(sinh) TLM_SHIM_MATH1(cosh) TLM_SHIM_MATH1(tanh) TLM_SHIM_MATH1(asinh) TLM_SHIM_MATH1(acosh)
TLM_SHIM_MATH1(atanh) TLM_SHIM_MATH1(erf) TLM_SHIM_MATH1(erfc) TLM_SHIM_MATH1(fabs) TLM_SHIM_MATH1(floor)
TLM_SHIM_MATH1(ceil) TLM_SHIM_MATH1(trunc) TLM_SHIM_MATH1(round) TLM_SHIM_MATH1(rint) TLM_SHIM_MATH1(nearbyint)
TLM_SHIM_MATH1(lgamma) TLM_SHIM_MATH1(tgamma)
TLM_SHIM_MATH2(pow) TLM_SHIM_MATH2(fmod) TLM_SHIM_MATH2(remainder) TLM_SHIM_MATH2(atan2) TLM_SHIM_MATH2(hypot)
TLM_SHIM_MATH2(fmax) TLM_SHIM_MATH2(fmin) TLM_SHIM_MATH2(copysign) TLM_SHIM_MATH2(fdim) TLM_SHIM_MATH2(nextafter)
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
extern "C" int abs(int) noexcept;
TLM_SHIM_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
TLM_SHIM_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
TLM_SHIM_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
TLM_SHIM_INLINE float rsqrt(float x) { return rsqrtf(x); }
TLM_SHIM_INLINE float abs(float x) { return fabsf(x); }
TLM_SHIM_INLINE double abs(double x) { return fabs(x); }
TLM_SHIM_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
TLM_SHIM_INLINE float __expf(float x) { return expf(x); }
TLM_SHIM_INLINE float __logf(float x) { return logf(x); }
TLM_SHIM_INLINE float __powf(float x, float y) { return powf(x, y); }
TLM_SHIM_INLINE float __fdividef(float x, float y) { return x / y; }
TLM_SHIM_INLINE float __frcp_rn(float x) { return 1.0f / x; }
TLM_SHIM_INLINE float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
TLM_SHIM_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
TLM_SHIM_INLINE float __fadd_rn(float x, float y) { return x + y; }
TLM_SHIM_INLINE float __fsub_rn(float x, float y) { return x - y; }
TLM_SHIM_INLINE float __fmul_rn(float x, float y) { return x * y; }
TLM_SHIM_INLINE float __fdiv_rn(float x, float y) { return x / y; }
TLM_SHIM_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
TLM_SHIM_INLINE double __dadd_rn(double x, double y) { return x + y; }
TLM_SHIM_INLINE double __dmul_rn(double x, double y) { return x * y; }
TLM_SHIM_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
TLM_SHIM_INLINE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
TLM_SHIM_INLINE float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
TLM_SHIM_INLINE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
TLM_SHIM_INLINE unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
TLM_SHIM_INLINE double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
TLM_SHIM_INLINE long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
TLM_SHIM_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
TLM_SHIM_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
TLM_SHIM_INLINE int __ffs(int x) { return __builtin_ffs(x); }
TLM_SHIM_INLINE unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x * y) >> 32); }
TLM_SHIM_INLINE int __mulhi(int x, int y) { return (int)(((long long)x * y) >> 32); }
template <class T> TLM_SHIM_INLINE T __ldg(const T* p) { return *p; }
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

#define TLM_SHIM_MINMAX(type) \
  TLM_SHIM_INLINE type min(type x, type y) { return y < x ? y : x; } \
  TLM_SHIM_INLINE type max(type x, type y) { return x < y ? y : x; }
TLM_SHIM_MINMAX(int)
TLM_SHIM_MINMAX(unsigned)
TLM_SHIM_MINMAX(long)
TLM_SHIM_MINMAX(unsigned long)
TLM_SHIM_MINMAX(long long)
TLM_SHIM_MINMAX(unsigned long long)
TLM_SHIM_INLINE float min(float x, float y) { return fminf(x, y); }
TLM_SHIM_INLINE float max(float x, float y) { return fmaxf(x, y); }
TLM_SHIM_INLINE double min(double x, double y) { return fmin(x, y); }
TLM_SHIM_INLINE double max(double x, double y) { return fmax(x, y); }

// ---- the launch: a kernel called with the values that `arguments` point to

template <unsigned... i> struct TlmShimSequence {};
template <class... P, unsigned... i>
__attribute__((no_sanitize("thread", "undefined"))) static inline void
tlm_shim_call(void (*kernel)(P...), void** arguments, TlmShimSequence<i...>) {
  kernel(*static_cast<P*>(arguments[i])...);
}
template <class... P> static constexpr int tlm_shim_arity(void (*)(P...)) { return sizeof...(P); }
#define TLM_SHIM_KERNEL(name)                                                                              \
  template <class... P> __attribute__((no_sanitize("thread", "undefined"))) static inline void             \
  tlm_shim_enter_##name(void (*kernel)(P...), void** arguments) {                                          \
    tlm_shim_call(kernel, arguments, TlmShimSequence<__integer_pack(sizeof...(P))...>());                  \
  }                                                                                                        \
  extern "C" __attribute__((no_sanitize("thread", "undefined"))) void tlm_shim_run_##name(void** arguments) { \
    tlm_shim_enter_##name(name, arguments);                                                                \
  }                                                                                                        \
  extern "C" int tlm_shim_arity_##name() { return tlm_shim_arity(name); }

// Closes the text: where its constants and its static shared memory lie.
#define TLM_SHIM_END                                                                                       \
  static __attribute__((section("tlm_static_shared"), used)) char tlm_shim_section_exists;                 \
  extern "C" {                                                                                             \
  __attribute__((visibility("hidden"))) extern char __ehdr_start[], __start_tlm_static_shared[], __stop_tlm_static_shared[]; \
  __attribute__((no_sanitize("thread"))) void tlm_shim_bounds(void** ends) {                               \
    ends[0] = __start_tlm_static_shared;                                                                   \
    ends[1] = __stop_tlm_static_shared;                                                                    \
    ends[2] = __ehdr_start;                                                                                \
  }                                                                                                        \
  }
