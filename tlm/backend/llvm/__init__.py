"""The LLVM backend: lowered programs to machine code for CPUs."""
