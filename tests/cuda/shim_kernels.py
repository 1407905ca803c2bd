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
