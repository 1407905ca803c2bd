"""tlm: a tensor compiler whose schedules are written by a language model."""
