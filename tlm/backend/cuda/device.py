"""CUDA C for what programs compute, without any header: types, operators, and helper functions.

Values of the half types are floats that a half can hold: they are converted where memory is read and written,
and rounded after each operation. Integers wrap. Helpers that need instructions of their own are assembly
under NVRTC; elsewhere they call functions named tlm_shim_*, with which tests run the text on a CPU.
"""

from __future__ import annotations

from ...ir.dtypes import DType
from .device_group import GROUP_HELPERS

STORED = {
    "f16": "unsigned short", "bf16": "unsigned short", "f32": "float", "f64": "double",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long", "u8": "unsigned char",
    "bool": "bool",
}  # fmt: skip
"""How elements lie in memory."""

VALUES = {**STORED, "f16": "float", "bf16": "float"}
"""The types in which values are computed."""

UNSIGNED = {"i32": "unsigned", "i64": "unsigned long long"}

VECTORS = {
    ("f32", 2): "float2", ("f32", 4): "float4", ("f64", 2): "double2", ("i32", 2): "int2", ("i32", 4): "int4",
    ("i64", 2): "longlong2",
}  # fmt: skip
"""Vectors whose members are elements; narrower elements travel in words (`WORDS`, by bytes)."""
WORDS = {4: "unsigned", 8: "uint2", 16: "uint4"}

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "eq": "==", "ne": "!="}  # fmt: skip

# {f} is "f" for float and nothing for double.
FLOAT = {
    "neg": "(-{0})", "abs": "fabs{f}({0})", "sign": "sign_of({0})", "fma": "fma{f}({0}, {1}, {2})",
    "minimum": "minimum({0}, {1})", "maximum": "maximum({0}, {1})", "pow": "pow{f}({0}, {1})",
    "atan2": "atan2{f}({0}, {1})", "rem": "fmod{f}({0}, {1})", "mod": "float_mod({0}, {1})",
    "floordiv": "float_floordiv({0}, {1})", "rsqrt": "(1 / sqrt{f}({0}))", "logistic": "logistic({0})",
    "round": "rint{f}({0})", "isnan": "({0} != {0})", "isfinite": "(fabs{f}({0}) < infinity{f}())",
    **{name: name + "{f}({0})" for name in (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "erf", "erfc", "floor", "ceil", "trunc", "cbrt")},
}  # fmt: skip
INTEGER = {
    "and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})", "not": "({T})(~{0})",
    "neg": "negated({0})", "abs": "({0} < 0 ? negated({0}) : {0})", "sign": "sign_of({0})",
    "floordiv": "floor_div({0}, {1})", "mod": "floor_mod({0}, {1})", "quot": "quotient({0}, {1})",
    "rem": "remainder_of({0}, {1})", "minimum": "min_of({0}, {1})", "maximum": "max_of({0}, {1})",
    "shl": "shift_left({0}, {1})", "shr": "shift_right({0}, {1})", "pow": "whole_power({0}, {1})",
}  # fmt: skip
BOOL = {
    "add": "({0} || {1})", "mul": "({0} && {1})", "and": "({0} && {1})", "or": "({0} || {1})",
    "xor": "({0} != {1})", "sub": "({0} != {1})", "minimum": "({0} && {1})", "maximum": "({0} || {1})",
    "not": "(!{0})", "neg": "{0}", "abs": "{0}", "sign": "{0}",
}  # fmt: skip

_HEAD = "__device__ __forceinline__ "
_T = "template <class T> __device__ __forceinline__ "
_ANY_HALF = """{
  const unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7fc0;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}"""


def _copy(n: int) -> str:
    """The asynchronous copy of `n` bytes to shared memory; of fewer bytes, with zeros after them."""
    cached = "cg" if n == 16 else "ca"
    return f"""__device__ __forceinline__ void copy_async_{n}(void* to, const void* from, int bytes = {n}) {{
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.{cached}.shared.global [%0], [%1], {n}, %2;" ::
               "r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
#else
  tlm_shim_cp_async_{n}(to, from, bytes);
#endif
}}"""


def _registers(count: int, first: int = 0) -> str:
    return "{" + ", ".join([f"%{first + n}" for n in range(count)]) + "}"


def _load_matrix(count: int, turned: bool) -> str:
    """`count` 8 x 8 matrices of 16-bit elements; each lane gives the address of a row of 16 bytes."""
    name = f"x{count}{'_trans' if turned else ''}"
    outputs = ", ".join([f'"=r"(to[{n}])' for n in range(count)])
    kind = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if turned else ''}.shared.b16"
    return f"""__device__ __forceinline__ void load_matrix_{name}(unsigned* to, const void* row) {{
#ifdef __CUDACC_RTC__
  asm volatile("{kind} {_registers(count)}, [%{count}];"
               : {outputs} : "r"(shared_address(row)) : "memory");
#else
  tlm_shim_ldmatrix_{name}(to, row);
#endif
}}"""


def _multiply(depth: int, kind: str, left: int, right: int) -> str:
    """16 x depth by depth x 8, added to the 4 sums that each lane holds."""
    name = f"mma_m16n8k{depth}_{kind}"
    inputs = [f'"r"(left[{n}])' for n in range(left)] + [f'"r"(right[{n}])' for n in range(right)]
    operands = f"{_registers(4)}, {_registers(left, 4)}, {_registers(right, 4 + left)}, {_registers(4)}"
    return f"""__device__ __forceinline__ void {name}(
    float& c0, float& c1, float& c2, float& c3, const unsigned* left, const unsigned* right) {{
#ifdef __CUDACC_RTC__
  asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 {operands};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
               : {", ".join(inputs)});
#else
  float sums[4] = {{c0, c1, c2, c3}};
  tlm_shim_{name}(sums, left, right, sums);
  c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];
#endif
}}"""


HELPERS: dict[str, str] = {
    "infinityf": _HEAD + "float infinityf() { return __int_as_float(0x7f800000); }",
    "infinity": _HEAD + "double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }",
    "from_f16": _HEAD + """float from_f16(unsigned short x) {
#ifdef __CUDACC_RTC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
  return value;
#else
  return tlm_shim_f16_to_f32(x);
#endif
}""",
    "to_f16": _HEAD + """unsigned short to_f16(float x) {
#ifdef __CUDACC_RTC__
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  return tlm_shim_f32_to_f16(x);
#endif
}""",
    "from_bf16": _HEAD + "float from_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }",
    "to_bf16": _HEAD + "unsigned short to_bf16(float x) " + _ANY_HALF,
    "round_f16": _HEAD + "float round_f16(float x) { return from_f16(to_f16(x)); }",
    "round_bf16": _HEAD + "float round_bf16(float x) { return from_bf16(to_bf16(x)); }",
    # A double rounded to odd, so that rounding it again to a half gives the nearest half.
    "to_odd": _HEAD + """float to_odd(double x) {
  const float near = (float)x;
  const int bits = __float_as_int(near);
  if ((double)near == x || x != x || fabsf(near) == __int_as_float(0x7f800000) || bits & 1) return near;
  const bool away = (x < 0 ? -x : x) > (near < 0 ? -(double)near : (double)near);
  return __int_as_float(near == 0 ? (int)((x < 0 ? 0x80000001u : 1u)) : away ? bits + 1 : bits - 1);
}""",
    "minimum": _T + "T minimum(T x, T y) { return x < y || x != x ? x : y; }",
    "maximum": _T + "T maximum(T x, T y) { return x > y || x != x ? x : y; }",
    "min_of": _T + "T min_of(T x, T y) { return x < y ? x : y; }",
    "max_of": _T + "T max_of(T x, T y) { return x > y ? x : y; }",
    "sign_of": _T + "T sign_of(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x; }",
    "logistic": _HEAD + """float logistic(float x) {
  const float e = expf(-fabsf(x));
  return x >= 0 ? 1 / (1 + e) : x < 0 ? e / (1 + e) : x;
}
""" + _HEAD + """double logistic(double x) {
  const double e = exp(-fabs(x));
  return x >= 0 ? 1 / (1 + e) : x < 0 ? e / (1 + e) : x;
}""",
    "float_mod": _T + """T float_mod(T x, T y) {
  const T r = fmod(x, y);
  if (r == 0) return copysign((T)0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}""",
    "float_floordiv": _T + """T float_floordiv(T x, T y) {
  if (y == 0) return x / y;
  const T r = fmod(x, y);
  T q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return copysign((T)0, x / y);
  const T down = floor(q);
  return q - down > (T)0.5 ? down + 1 : down;
}""",
    "negated": _T + "T negated(T x) { return (T)(0 - (unsigned long long)x); }",
    "quotient": _T + """T quotient(T x, T y) {
  return y == 0 ? 0 : y == (T)-1 && (T)-1 < 0 ? negated(x) : x / y;
}""",
    "remainder_of": _T + """T remainder_of(T x, T y) {
  return y == 0 || (y == (T)-1 && (T)-1 < 0) ? 0 : x % y;
}""",
    "floor_div": _T + """T floor_div(T x, T y) {
  const T q = quotient(x, y);
  return y != 0 && remainder_of(x, y) != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}""",
    "floor_mod": _T + """T floor_mod(T x, T y) {
  const T r = remainder_of(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}""",
    "shift_left": _T + """T shift_left(T x, T n) {
  return n < 0 || n >= (int)(8 * sizeof(T)) ? 0 : (T)((unsigned long long)x << n);
}""",
    "shift_right": _T + """T shift_right(T x, T n) {
  return n < 0 || n >= (int)(8 * sizeof(T)) ? (x < 0 ? -1 : 0) : x >> n;
}""",
    "whole_power": _T + """T whole_power(T x, T y) {
  if (y < 0) return x == 1 ? 1 : x == (T)-1 ? (y & 1 ? -1 : 1) : 0;
  unsigned long long out = 1, base = (unsigned long long)x;
  for (; y; y >>= 1, base *= base)
    if (y & 1) out *= base;
  return (T)out;
}""",
    "saturate": """template <class T, class F>
__device__ __forceinline__ T saturate(F x, T low, T high) {
  return x != x ? 0 : x <= (F)low ? low : x >= (F)high ? high : (T)x;
}""",
    "swizzled": """template <int period, int ways, int step> __device__ __forceinline__ int swizzled(int x) {
  return x ^ (unsigned)x / period % ways * step;
}""",
    "shared_address": """#ifdef __CUDACC_RTC__
__device__ __forceinline__ unsigned shared_address(const void* x) {
  return (unsigned)__cvta_generic_to_shared(x);
}
#endif""",
    "copy_async": "\n".join([_copy(n) for n in (4, 8, 16)]) + """
__device__ __forceinline__ void copy_async_commit() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  tlm_shim_cp_async_commit();
#endif
}
template <int pending> __device__ __forceinline__ void copy_async_wait() {
#ifdef __CUDACC_RTC__
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
  tlm_shim_cp_async_wait<pending>();
#endif
}""",
    "to_tf32": _HEAD + """unsigned to_tf32(float x) {
#ifdef __CUDACC_RTC__
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return tlm_shim_f32_to_tf32(x);
#endif
}""",
    **{f"load_matrix_x{n}": _load_matrix(n, False) for n in (1, 2, 4)},
    **{f"load_matrix_x{n}_trans": _load_matrix(n, True) for n in (1, 2, 4)},
    **{f"mma_m16n8k{d}_{t}": _multiply(d, t, d // 4, d // 8) for d in (16, 8) for t in ("bf16", "f16")},
    **{f"mma_m16n8k{d}_tf32": _multiply(d, "tf32", d // 2, d // 4) for d in (8, 4)},
    **GROUP_HELPERS,
}  # fmt: skip
"""Helper functions by name, each after those that it calls."""

RESERVED = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch",
    "char", "class", "compl",
    "concept", "const", "constexpr", "const_cast", "continue", "decltype",
    "default",
    "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false",
    "float", "for", "friend", "goto",
    "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept",
    "not",
    "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
    "reinterpret_cast", "requires", "return", "short", "signed", "sizeof", "static", "static_assert",
    "static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while",
    "xor", "xor_eq", "T", "F", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "size_t",
    "min", "max", "main", "thread", "lane", "offset", "pow", "fmod", "copysign", "expf", "fabs", "fabsf",
    "y0", "y1", "yn", "j0", "j1", "jn", "gamma", "linux", "unix", "abs", "div", "index", "signbit", "isnan",
    "isinf", "isfinite", "clock", "memcpy", "memset", "assert", "printf", "copy_async_commit",
    "copy_async_wait", "copy_async_4", "copy_async_8", "copy_async_16",
    *HELPERS, *VECTORS.values(), *WORDS.values(),
    *[f.split("{")[0].strip("(") + s for f in FLOAT.values() for s in ("", "f")],
))  # fmt: skip
"""Words that no buffer and no loop may be called in the text."""


def is_half(dtype: DType) -> bool:
    """Whether values of `dtype` are computed in f32 and rounded."""
    return dtype.is_float and dtype.bytes == 2
