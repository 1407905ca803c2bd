"""Spaces of schedules for GPUs. Every sentence is legal within the threads, registers and shared memory of
the target."""
