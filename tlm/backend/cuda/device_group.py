"""CUDA C for matrix instructions of warpgroups (wgmma of sm_90a): descriptors, fences, groups of products.

A product reads both factors from shared memory by itself, through the proxy of asynchronous accesses: what
threads or copies wrote is seen behind a fence of that proxy and a barrier. It adds to registers that nothing
may touch from `wgmma_fence` until its group is waited for; `wgmma_hold` keeps the compiler from moving them
across. (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
"""

from __future__ import annotations

_HEAD = "__device__ __forceinline__ "
_MOST = 256


def _plain(name: str, kind: str, shim: str) -> str:
    """A function without operands: one instruction."""
    return f"""{_HEAD}void {name}() {{
#ifdef __CUDACC_RTC__
  asm volatile("{kind};" ::: "memory");
#else
  {shim}();
#endif
}}"""


def _multiply(columns: int, kind: str) -> str:
    """64 x 16 by 16 x `columns`, added to the sums of all threads of a warpgroup."""
    count = columns // 2
    sums = ", ".join([f"%{n}" for n in range(count)])
    operands = ", ".join([f'"+f"(sums[{n}])' for n in range(count)])
    name = f"wgmma_m64n{columns}k16_{kind}"
    code = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"
    return f"""template <int left_turned, int right_turned>
{_HEAD}void {name}(float* sums, unsigned long long left, unsigned long long right) {{
#ifdef __CUDACC_RTC__
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, 1, 0;\\n{code} {{{sums}}}, "
               "%{count}, %{count + 1}, adds, 1, 1, %{count + 2}, %{count + 3};\\n}}"
               : {operands}
               : "l"(left), "l"(right), "n"(left_turned), "n"(right_turned));
#else
  tlm_shim_wgmma_{kind}({columns}, sums, left, right, left_turned, right_turned);
#endif
}}"""


GROUP_HELPERS: dict[str, str] = {
    "fence_async": _plain("fence_async", "fence.proxy.async.shared::cta", "tlm_shim_fence_proxy_async"),
    # Rows of 128 bytes whose pieces of 16 change places.
    "matrix_descriptor": f"""template <int leading, int stride>
{_HEAD}unsigned long long matrix_descriptor(const void* start) {{
#ifdef __CUDACC_RTC__
  const unsigned address = shared_address(start);
#else
  const unsigned address = tlm_shim_shared_address(start);
#endif
  return 1ull << 62 | (unsigned long long)(stride >> 4) << 32 | (unsigned long long)(leading >> 4) << 16 |
         (address & 0x3ffff) >> 4;
}}""",
    "wgmma_fence": _plain("wgmma_fence", "wgmma.fence.sync.aligned", "tlm_shim_wgmma_fence"),
    "wgmma_commit": _plain("wgmma_commit", "wgmma.commit_group.sync.aligned", "tlm_shim_wgmma_commit"),
    "wgmma_wait": f"""template <int pending> {_HEAD}void wgmma_wait() {{
#ifdef __CUDACC_RTC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
#else
  tlm_shim_wgmma_wait<pending>();
#endif
}}""",
    "wgmma_hold": f"""template <int count> {_HEAD}void wgmma_hold(float* sums) {{
#ifdef __CUDACC_RTC__
  #pragma unroll
  for (int n = 0; n < count; ++n) asm volatile("" : "+f"(sums[n]) :: "memory");
#endif
}}""",
    **{
        f"wgmma_m64n{n}k16_{kind}": _multiply(n, kind)
        for n in range(8, _MOST + 1, 8)
        for kind in ("bf16", "f16")
    },
}
"""Helper functions by name; those under NVRTC call `shared_address`."""
