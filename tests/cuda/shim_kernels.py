"""CUDA C written by hand, as a programmer would, to try the shim on."""

from __future__ import annotations

VECTOR_ADD = """
extern "C" __global__ void
add(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) C[i] = A[i] + B[i];
}
"""

# 64 x 64 tiles of C, 4 x 4 a thread, 128-bit loads, A transposed on its way to shared memory, two buffers.
SGEMM = """
#define M 128
#define N 64
#define K 32
extern "C" __global__ void __launch_bounds__(256)
sgemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) float As[2][8][64];
  __shared__ __align__(16) float Bs[2][8][64];
  const int t = threadIdx.x, row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  const int ty = t / 16, tx = t % 16;
  float acc[4][4];
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  for (int tile = 0; tile <= K / 8; ++tile) {
    if (tile < K / 8) {
      float (*a)[64] = As[tile % 2], (*b)[64] = Bs[tile % 2];
      if (t < 128) {
        const int r = t / 2, k = t % 2 * 4;
        float4 v = *(const float4*)(A + (row0 + r) * K + tile * 8 + k);
        a[k + 0][r] = v.x;
        a[k + 1][r] = v.y;
        a[k + 2][r] = v.z;
        a[k + 3][r] = v.w;
      } else {
        const int k = (t - 128) / 16, c = t % 16 * 4;
        *(float4*)&b[k][c] = *(const float4*)(B + (tile * 8 + k) * N + col0 + c);
      }
    }
    if (tile > 0) {
      float (*a)[64] = As[(tile + 1) % 2], (*b)[64] = Bs[(tile + 1) % 2];
      for (int k = 0; k < 8; ++k) {
        float4 x = *(const float4*)&a[k][ty * 4];
        float4 y = *(const float4*)&b[k][tx * 4];
        const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(xs[i], ys[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    float4* c = (float4*)(C + (row0 + ty * 4 + i) * N + col0 + tx * 4);
    *c = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
  }
}
"""

# The textbook's product: one element a thread, one buffer of dynamic shared memory, guards for tails.
TILED = """
extern "C" __global__ void tiled(const float* A, const float* B, float* C, int m, int n, int k) {
  extern __shared__ __align__(16) unsigned char tlm_shared[];
  float (*As)[16] = (float (*)[16])tlm_shared;
  float (*Bs)[16] = (float (*)[16])(tlm_shared + 1024);
  const int ty = threadIdx.y, tx = threadIdx.x, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float acc = 0.0f;
  for (int k0 = 0; k0 < k; k0 += 16) {
    As[ty][tx] = row < m && k0 + tx < k ? A[row * k + k0 + tx] : 0.0f;
    Bs[ty][tx] = k0 + ty < k && col < n ? B[(k0 + ty) * n + col] : 0.0f;
    __syncthreads();  // filled
    for (int x = 0; x < 16; ++x) acc += As[ty][x] * Bs[x][tx];
    __syncthreads();  // used up
  }
  if (row < m && col < n) C[row * n + col] = acc;
}
"""

# A block a row: shuffles within warps, then one pass over the warps' partial results.
SOFTMAX = """
__device__ __forceinline__ float larger(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ float sum(float x, float y) { return x + y; }
template <float (*combine)(float, float)>
__device__ __forceinline__ float reduce(float value, float* partial) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();  // partial results are there
  value = partial[0];
  for (int w = 1; w < 4; ++w) value = combine(value, partial[w]);
  __syncthreads();  // and may be overwritten
  return value;
}
extern "C" __global__ void softmax(const float* x, float* y, int n) {
  __shared__ float partial[4];
  const float* row = x + blockIdx.x * n;
  float top = __int_as_float(0xff800000);
  for (int i = threadIdx.x; i < n; i += 128) top = fmaxf(top, row[i]);
  top = reduce<larger>(top, partial);
  float total = 0.0f;
  for (int i = threadIdx.x; i < n; i += 128) total += expf(row[i] - top);
  total = reduce<sum>(total, partial);
  for (int i = threadIdx.x; i < n; i += 128) y[blockIdx.x * n + i] = expf(row[i] - top) / total;
}
"""

# 32 x 32 tiles of C by four warps, two stages of asynchronous copies, rows padded against bank conflicts.
BF16_PRODUCT = """
#define M 64
#define N 32
#define K 64
__device__ __forceinline__ void cp_async_16(void* shared, const void* global) {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::
               "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
#else
  tlm_shim_cp_async_16(shared, global);
#endif
}
__device__ __forceinline__ void cp_async_commit() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  tlm_shim_cp_async_commit();
#endif
}
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
#else
  tlm_shim_cp_async_wait<pending>();
#endif
}
__device__ __forceinline__ void ldmatrix_x4(unsigned* d, const void* row) {
#ifdef __CUDACC_RTC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
#else
  tlm_shim_ldmatrix_x4(d, row);
#endif
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned* d, const void* row) {
#ifdef __CUDACC_RTC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
#else
  tlm_shim_ldmatrix_x4_trans(d, row);
#endif
}
__device__ __forceinline__ void mma_bf16(float* d, const unsigned* a, const unsigned* b) {
#ifdef __CUDACC_RTC__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  tlm_shim_mma_m16n8k16_bf16(d, a, b, d);
#endif
}
extern "C" __global__ void __launch_bounds__(128)
product(const unsigned short* __restrict__ A, const unsigned short* __restrict__ B, float* __restrict__ C) {
  __shared__ __align__(16) unsigned short As[2][32][24];
  __shared__ __align__(16) unsigned short Bs[2][16][40];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int row0 = blockIdx.y * 32, col0 = blockIdx.x * 32, wm = warp / 2 * 16, wn = warp % 2 * 16;
  float acc[2][4] = {};
  for (int stage = -1; stage < K / 16; ++stage) {
    const int next = stage + 1;
    if (next < K / 16) {
      if (t < 64)
        cp_async_16(&As[next % 2][t / 2][t % 2 * 8], A + (row0 + t / 2) * K + next * 16 + t % 2 * 8);
      else
        cp_async_16(&Bs[next % 2][(t - 64) / 4][t % 4 * 8],
                    B + (next * 16 + (t - 64) / 4) * N + col0 + t % 4 * 8);
    }
    cp_async_commit();
    if (stage < 0) continue;
    cp_async_wait<1>();
    __syncthreads();  // this stage is there
    unsigned a[4], b[4];
    ldmatrix_x4(a, &As[stage % 2][wm + lane % 16][lane / 16 * 8]);
    ldmatrix_x4_trans(b, &Bs[stage % 2][lane % 16][wn + lane / 16 * 8]);
    mma_bf16(acc[0], a, b);
    mma_bf16(acc[1], a, b + 2);
    __syncthreads();  // and may be overwritten
  }
  for (int half = 0; half < 2; ++half) {
    float* c = C + (row0 + wm + lane / 4) * N + col0 + wn + half * 8 + lane % 4 * 2;
    *(float2*)c = make_float2(acc[half][0], acc[half][1]);
    *(float2*)(c + 8 * N) = make_float2(acc[half][2], acc[half][3]);
  }
}
"""

# 64 x 64, tiles of 32 x 32 by (32, 8) threads; PAD elements after each row of the tile.
TRANSPOSE = """
extern "C" __global__ void transpose(const float* x, float* y) {
  __shared__ float tile[32][32 + PAD];
  for (int i = threadIdx.y; i < 32; i += 8)
    tile[i][threadIdx.x] = x[(blockIdx.y * 32 + i) * 64 + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8)
    y[(blockIdx.x * 32 + i) * 64 + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][i];
}
"""

# One defect a kernel.
FAULTS = """
extern "C" __global__ void unguarded(const float* A, float* C) {
  int i = blockIdx.x * 32 + threadIdx.x;
  C[i] = 2.0f * A[i];
}
extern "C" __global__ void wild_write(float* C) {
  C[(int)threadIdx.x - 1] = 1.0f;
}
extern "C" __global__ void wrapped_index(float* C) {
  int i = (threadIdx.x + 32768) * 65536;
  C[i] = 1.0f;
}
extern "C" __global__ void misaligned(const float* A, float4* C) {
  C[threadIdx.x] = *(const float4*)(A + 4 * threadIdx.x + 2);
}
extern "C" __global__ void beyond_dynamic(float* C) {
  extern __shared__ float buffer[];
  buffer[threadIdx.x] = 1.0f;
  C[threadIdx.x] = buffer[threadIdx.x];
}
extern "C" __global__ void beyond_static(float* C, int shift) {
  __shared__ float buffer[32];
  buffer[threadIdx.x + shift] = 1.0f;
  C[threadIdx.x] = buffer[threadIdx.x + shift];
}
extern "C" __global__ void beyond_registers(float* C, int shift) {
  float mine[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  C[threadIdx.x] = mine[threadIdx.x + shift];
}
extern "C" __global__ void early_exit(float* C) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  C[threadIdx.x] = 1.0f;
}
extern "C" __global__ void two_barriers(float* C) {
  if (threadIdx.x < 32) {
    __syncthreads();  // one
    C[threadIdx.x] = 1.0f;
  } else {
    __syncthreads();  // other
    C[threadIdx.x] = 2.0f;
  }
}
extern "C" __global__ void half_a_shuffle(float* C) {
  float v = threadIdx.x;
  if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
  __syncthreads();
  C[threadIdx.x] = v;
}
extern "C" __global__ void shuffle_from_exited(float* C) {
  float v = threadIdx.x;
  if (threadIdx.x >= 16) return;
  C[threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 16);
}
extern "C" __global__ void wrong_mask(float* C) {
  C[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}
extern "C" __global__ void blocks_overwrite(float* C) {
  C[threadIdx.x] = blockIdx.x;
}
extern "C" __global__ void blocks_read(float* C) {
  C[blockIdx.x + 1] = blockIdx.x ? C[blockIdx.x] : 0.0f;
}
extern "C" __global__ void blocks_overwrite_read(float* C) {
  float v = C[1];
  if (blockIdx.x == 1) C[1] = v + 1.0f;
  else C[2] = v;
}
extern "C" __global__ void warp_exchange(float* C, int synchronised) {
  __shared__ float buffer[64];
  buffer[threadIdx.x] = threadIdx.x;
  if (synchronised) __syncwarp();
  C[threadIdx.x] = buffer[threadIdx.x ^ 1];
}
extern "C" __global__ void across_warps(float* C) {
  __shared__ float buffer[64];
  buffer[threadIdx.x] = threadIdx.x;
  __syncwarp();
  C[threadIdx.x] = buffer[threadIdx.x ^ 32];
}
extern "C" __global__ void half_cells(unsigned short* C, int shift) {
  __shared__ unsigned short buffer[66];
  buffer[threadIdx.x] = 1;
  C[threadIdx.x] = buffer[threadIdx.x + shift];
}
extern "C" __global__ void atomic_sum(float* C, int read_too) {
  atomicAdd(C, 1.0f);
  if (read_too && threadIdx.x == 0) C[1] = C[0];
}
extern "C" __global__ void unwaited(const float4* A, float4* C) {
  __shared__ float4 buffer[32];
  tlm_shim_cp_async_16(&buffer[threadIdx.x], A + threadIdx.x);
  tlm_shim_cp_async_commit();
  C[threadIdx.x] = buffer[threadIdx.x];
  tlm_shim_cp_async_wait<0>();
}
extern "C" __global__ void waited_for_the_wrong_group(const float4* A, float4* C) {
  __shared__ float4 buffer[2][32];
  for (int i = 0; i < 2; ++i) {
    tlm_shim_cp_async_16(&buffer[i][threadIdx.x], A + threadIdx.x);
    tlm_shim_cp_async_commit();
  }
  tlm_shim_cp_async_wait<1>();
  C[threadIdx.x] = buffer[1][threadIdx.x];
}
extern "C" __global__ void never_written(float* C) {
  __shared__ float buffer[32];
  if (threadIdx.x) buffer[threadIdx.x] = 1.0f;
  C[threadIdx.x] = buffer[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) bounded(float* C) { C[0] = 1.0f; }
"""

# A thread writes where its own asynchronous copy reads.
CHANGING_SOURCE = """
extern "C" __global__ void source_changes(float* A, float* C) {
  __shared__ float buffer[32];
  tlm_shim_cp_async_4(&buffer[threadIdx.x], A + threadIdx.x);
  A[threadIdx.x] = 5.0f;
  tlm_shim_cp_async_wait_all();
  C[threadIdx.x] = buffer[threadIdx.x];
}
"""

# Warp operations and conversions: each kernel writes what every lane gets.
OPERATIONS = """
extern "C" __global__ void shuffles(int* C, int amount, int width) {
  int lane = threadIdx.x;
  C[lane] = __shfl_sync(0xffffffffu, lane, amount, width);
  C[32 + lane] = __shfl_up_sync(0xffffffffu, lane, amount, width);
  C[64 + lane] = __shfl_down_sync(0xffffffffu, lane, amount, width);
  C[96 + lane] = __shfl_xor_sync(0xffffffffu, lane, amount, width);
}
extern "C" __global__ void wide_shuffle(double* C) {
  C[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0 / (1 + (int)threadIdx.x), 1);
}
extern "C" __global__ void votes(unsigned* C, unsigned chosen) {
  int p = chosen >> threadIdx.x & 1;
  C[threadIdx.x] = __ballot_sync(0xffffffffu, p);
  C[32 + threadIdx.x] = __any_sync(0xffffffffu, p) + 2 * __all_sync(0xffffffffu, p);
  C[64 + threadIdx.x] = __syncthreads_count(p) + 100 * __syncthreads_and(p) + 1000 * __syncthreads_or(p);
}
extern "C" __global__ void half_warps(int* C) {
  int lane = threadIdx.x;
  if (lane < 16) C[lane] = __shfl_xor_sync(0x0000ffffu, lane, 8);
  else C[lane] = __shfl_xor_sync(0xffff0000u, lane, 4);
}
__constant__ float table[4] = {1.0f, 10.0f, 100.0f, 1000.0f};
extern "C" __global__ void indices(int* C, float* D) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  C[i] = i;
  D[i] = table[i % 4];
}
extern "C" __global__ void widen(const unsigned short* H, float* F, float* B) {
  for (int i = threadIdx.x; i < 65536; i += 256) {
    F[i] = tlm_shim_f16_to_f32(H[i]);
    B[i] = tlm_shim_bf16_to_f32(H[i]);
  }
}
extern "C" __global__ void
narrow(const float* X, unsigned short* F, unsigned short* B, unsigned* T, unsigned* P, int n) {
  for (int i = threadIdx.x; i < n; i += 256) {
    F[i] = tlm_shim_f32_to_f16(X[i]);
    B[i] = tlm_shim_f32_to_bf16(X[i]);
    T[i] = tlm_shim_f32_to_tf32(X[i]);
    P[i] = tlm_shim_f32x2_to_bf16x2(X[i], X[0]);
  }
}
__device__ __forceinline__ unsigned pair(const unsigned short* low, int step) {
  return low[0] | (unsigned)low[step] << 16;
}
extern "C" __global__ void zero_filled(const float4* A, float4* C) {
  __shared__ float4 buffer[32];
  const int bytes = threadIdx.x < 8 ? 16 : threadIdx.x < 16 ? 4 : 0;
  tlm_shim_cp_async_16(&buffer[threadIdx.x], A + threadIdx.x % 8, bytes);
  tlm_shim_cp_async_wait_all();
  C[threadIdx.x] = buffer[threadIdx.x];
}
extern "C" __global__ void strided(const float* A, float* C, int step) {
  C[threadIdx.x] = A[step * threadIdx.x];
}
extern "C" __global__ void banks(float* C, int step) {
  extern __shared__ __align__(16) float buffer[];
  for (int i = threadIdx.x; i < 1024; i += 32) buffer[i] = i;
  __syncthreads();
  C[threadIdx.x] = buffer[step * threadIdx.x];
  float4 v = ((float4*)buffer)[threadIdx.x];
  C[32 + threadIdx.x] = v.x + v.y + v.z + v.w;
}
"""

_HALVES = """
extern "C" __global__ void NAME(const unsigned short* A, const unsigned short* B, const float* C, float* D) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned a[DEPTH / 4], b[DEPTH / 8];
  for (int i = 0; i < DEPTH / 4; ++i) a[i] = pair(A + (g + i % 2 * 8) * DEPTH + 2 * t + i / 2 * 8, 1);
  for (int i = 0; i < DEPTH / 8; ++i) b[i] = pair(B + (2 * t + 8 * i) * 8 + g, 8);
  float c[4], d[4];
  for (int i = 0; i < 4; ++i) c[i] = C[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  tlm_shim_mma_NAME(d, a, b, c);
  for (int i = 0; i < 4; ++i) D[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
"""
_TF32 = """
extern "C" __global__ void NAME(const unsigned* A, const unsigned* B, const float* C, float* D) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned a[DEPTH / 2], b[DEPTH / 4];
  for (int i = 0; i < DEPTH / 2; ++i) a[i] = A[(g + i % 2 * 8) * DEPTH + t + i / 2 * 4];
  for (int i = 0; i < DEPTH / 4; ++i) b[i] = B[(t + 4 * i) * 8 + g];
  float c[4], d[4];
  for (int i = 0; i < 4; ++i) c[i] = C[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  tlm_shim_mma_NAME(d, a, b, c);
  for (int i = 0; i < 4; ++i) D[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
"""
# Shapes of mma.sync -> k.
PRODUCTS = {
    "m16n8k16_bf16": 16,
    "m16n8k16_f16": 16,
    "m16n8k8_bf16": 8,
    "m16n8k8_f16": 8,
    "m16n8k8_tf32": 8,
    "m16n8k4_tf32": 4,
}
OPERATIONS += "".join(
    (_TF32 if "tf32" in name else _HALVES).replace("NAME", name).replace("DEPTH", str(depth))
    for name, depth in PRODUCTS.items()
)
