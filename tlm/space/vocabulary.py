"""The closed vocabulary of spaces: names of choices, words among their values, and names of facts."""

from __future__ import annotations

CHOICES = (
    "style", "lanes", "columns", "rows", "split_k", "parallel", "block_k", "block_m", "block_n", "order",
    "inner", "pack_n", "pack_m", "unroll", "prefetch", "epilogue", "width",
    "height", "window", "hold",
    "recompute", "fusion", "merge",
    "terms",
    # Of GPUs.
    "cta_m", "cta_h", "cta_n", "cta_k", "thread_m", "thread_n", "warp_m", "group", "stage_m", "stage_n",
    "vector", "stages", "slices", "raster", "align", "form", "threads", "cta_rows", "items", "keep",
    "turns",
)  # fmt: skip
"""Every question that a space may ask."""

WORDS = (
    "none", "outer", "swapped", "dot", "batch", "m", "n", "k", "mn", "nm", "mk", "km", "nk", "kn",
    "mnk", "mkn", "nmk", "nkm", "kmn", "knm", "block", "fused", "tile", "separate",
    "last", "all", "groups",
    "reduced", "kept", "store", "inline", "split",
    # Of GPUs.
    "shared", "register", "tiles", "matrix",
)  # fmt: skip
"""Every value that is not a number."""

FACTS = (
    "size",  # elements along the axis
    "trips",  # iterations of the loop that the option makes
    "waste",  # percent of the work that falls outside the extent (tails that are computed or masked)
    "registers",  # percent of the vector registers that are live
    "intensity",  # multiply-adds for each vector load in the innermost loop
    "l1",  # bytes of the block, percent of the L1 cache
    "l2",  # the same of L2
    "l3",  # the same of L3
    "reuse",  # times that each loaded or packed element is used
    "traffic",  # bytes moved beyond the caches for each byte of the operands, percent
    "stride",  # bytes between neighbours along the vector axis
    "tasks",  # units of parallel work for each thread, percent
    "imbalance",  # percent by which the busiest thread exceeds the mean
    "code",  # vector operations in the innermost loop body
    "conflicts",  # lines of an operand's block, percent of the L1 lines that its addresses can fall on
    "rate",  # multiply-adds of the innermost instruction, percent of those of an f32 FMA in the same time
    # Of GPUs.
    "threads",  # threads of a block
    "shared",  # shared memory of a block, percent of the most that one may have
    "occupancy",  # resident threads, percent of the most that a multiprocessor holds
    "waves",  # blocks, percent of those that run at one time
)
"""Every quantity that an option may state."""
