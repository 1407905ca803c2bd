"""CUDA C of warp operations, conversions and matrix instructions: kernels write what every lane gets."""

from __future__ import annotations

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
