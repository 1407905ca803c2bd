"""C for what programs compute: types, operators, and helper functions that C lacks."""

from __future__ import annotations

C_TYPES = {
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double", "i8": "int8_t", "i16": "int16_t",
    "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
"""How elements lie in memory. C has no portable half types: their bits are passed as integers."""

INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
          "ne": "!=", "and": "&", "or": "|", "xor": "^"}  # fmt: skip
# Operations whose C is not a call of libm's function of the same name.
FLOAT = {
    "div": "({} / {})", "neg": "(-{})", "abs": "fabs({})", "floordiv": "floor({} / {})",
    "rem": "fmod({}, {})", "mod": "float_mod({}, {})", "minimum": "least({}, {})",
    "maximum": "greatest({}, {})", "sign": "sign({})",
    "rsqrt": "(1 / sqrt({}))", "logistic": "logistic({})", "round": "nearbyint({})",
    "isnan": "(isnan({}) != 0)", "isfinite": "(isfinite({}) != 0)",
}  # fmt: skip
WHOLE = {
    "neg": "(-{})", "not": "(~{})", "abs": "({0} < 0 ? -{0} : {0})", "sign": "(({0} > 0) - ({0} < 0))",
    "floordiv": "floor_div({}, {})", "mod": "floor_mod({}, {})", "quot": "quot({}, {})", "rem": "rem({}, {})",
    "minimum": "({0} < {1} ? {0} : {1})", "maximum": "({0} > {1} ? {0} : {1})",
    "shl": "shl({}, {}, {bits})", "shr": "shr({}, {}, {bits})", "pow": "whole_pow({}, {})",
}  # fmt: skip

HELPERS = {
    "half": """static double half(uint16_t h) {
  double size = (h >> 10 & 31) == 31 ? (h & 1023 ? NAN : INFINITY)
              : (h >> 10 & 31) == 0 ? ldexp(h & 1023, -24) : ldexp(1024 + (h & 1023), (h >> 10 & 31) - 25);
  return h >> 15 ? -size : size;
}""",
    "brain": """static double brain(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}""",
    "float_mod": """static double float_mod(double x, double y) {
  double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}""",
    "least": "static double least(double x, double y) { return x < y || x != x ? x : y; }",
    "greatest": "static double greatest(double x, double y) { return x > y || x != x ? x : y; }",
    "sign": "static double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }",
    "logistic": "static double logistic(double x) { return 1 / (1 + exp(-x)); }",
    "quot": "static int64_t quot(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? 0 - x : x / y; }",
    "rem": "static int64_t rem(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }",
    "floor_div": """static int64_t floor_div(int64_t x, int64_t y) {
  int64_t q = y == 0 ? 0 : y == -1 ? 0 - x : x / y;
  return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}""",
    "floor_mod": """static int64_t floor_mod(int64_t x, int64_t y) {
  int64_t r = y == 0 || y == -1 ? 0 : x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}""",
    "shl": """static int64_t shl(int64_t x, int64_t n, int bits) {
  return n < 0 || n >= bits ? 0 : (int64_t)((uint64_t)x << n);
}""",
    "shr": """static int64_t shr(int64_t x, int64_t n, int bits) {
  return n < 0 || n >= bits ? (x < 0 ? -1 : 0) : x >> n;
}""",
    "whole_pow": """static int64_t whole_pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t out = 1;
  for (uint64_t base = (uint64_t)x; y; y >>= 1, base *= base)
    if (y & 1) out *= base;
  return (int64_t)out;
}""",
    "saturate": """static int64_t saturate(double x, int64_t low, int64_t high) {
  return x != x ? 0 : x <= (double)low ? low : x >= (double)high ? high : (int64_t)x;
}""",
}

RESERVED = frozenset((
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
    "unsigned", "void", "volatile", "while", "main", "next", "bad",
    "plain", "threads", "workspace", "size", "line", "argc", "argv", "abs", "div", "exp", "log", "sin",
    "cos", "tan", "pow", "floor", "ceil", "round", "trunc", "fma", "y0", "y1", "yn", "j0", "j1",
    "jn",
    # of the example that checks a kernel: what it calls, its variables, and macros of what it includes
    "calloc", "malloc", "free", "aligned_alloc", "printf", "puts", "atoll", "fabs", "isfinite", "memcpy",
    "state", "CHECK", "NULL", "INFINITY", "NAN", "HUGE_VAL", "EOF", "errno", "stdin", "stdout", "stderr",
    "unix", "linux", "int64_t", "uint64_t", "uint16_t",
    # of C++, which reads the header
    "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool", "catch", "class", "compl",
    "concept", "const_cast", "consteval", "constexpr", "constinit", "co_await", "co_return", "co_yield",
    "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace",
    "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected",
    "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this",
    "thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor",
    "xor_eq",
))  # fmt: skip
