"""CUDA C with a defect in each kernel, for the shim to find."""

from __future__ import annotations

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
