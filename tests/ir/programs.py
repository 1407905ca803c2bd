"""A few programs that the tests of the IR share."""

from __future__ import annotations

from tlm.ir.build import Builder
from tlm.ir.dtypes import f32
from tlm.ir.exprs import Cast, Var, const, op
from tlm.ir.nodes import For, Program, Stmt, Update


def matmul(m: int = 4, n: int = 5, k: int = 6) -> Program:
    """C[i, j] = sum of A[i, k] * B[k, j], in f32."""
    b = Builder("matmul")
    A, B = b.input("A", (m, k), "f32"), b.input("B", (k, n), "f32")
    b.reduce("C", (m, n), over={"k": k}, fn=lambda i, j, k: A[i, k] * B[k, j], output=True)
    return b.build()


def linear_relu(m: int = 4, n: int = 5, k: int = 6) -> Program:
    """bf16 operands (weights transposed), f32 accumulation, bias and relu."""
    b = Builder("linear")
    x, w = b.input("x", (m, k), "bf16"), b.input("w", (k, n), "bf16", strides=(1, k))
    bias = b.input("bias", (n,), "f32")
    acc = b.reduce("acc", (m, n), {"k": k}, lambda i, j, k: Cast(x[i, k], f32) * Cast(w[k, j], f32))
    b.compute(
        "y", (m, n), lambda i, j: op("maximum", acc[i, j] + bias[j], const(0, f32)), dtype="bf16", output=True
    )
    return b.build()


def argmax_rows(m: int = 3, n: int = 7, dtype: str = "f32") -> Program:
    """Largest value of each row and where it is."""
    b = Builder("argmax")
    A = b.input("A", (m, n), dtype)
    b.reduce(("v", "at"), (m,), {"k": n}, lambda i, k: (A[i, k], k), "argmax", output=True)
    return b.build()


def with_body(program: Program, body: Stmt) -> Program:
    """The same parameters around another body."""
    return Program(program.name, program.inputs, program.outputs, body)


def tiled_matmul() -> Program:
    """matmul (4, 5, 6) with i split by 2, run in parallel, j vectorised and k unrolled."""
    program = matmul()
    update = Update(
        ("C",),
        (Var("i.0") * 2 + Var("i.1"), Var("j")),
        tuple(_rename(v) for v in _innermost(program.body).values),
        "sum",
        ("k",),
    )
    nest = For("k", 6, For("i.1", 2, For("j", 5, update, "vectorize"), "unroll"), unroll=3)
    return with_body(program, For("i.0", 2, nest, "parallel"))


def _rename(expr):
    from tlm.ir.walk import substitute

    return substitute(expr, {"i": Var("i.0") * 2 + Var("i.1")})


def _innermost(stmt: Stmt) -> Stmt:
    while isinstance(stmt, For):
        stmt = stmt.body
    return stmt
