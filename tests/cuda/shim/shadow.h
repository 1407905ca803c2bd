// Races: two accesses to one cell, one of them writing, that no barrier (or __syncwarp, or launch) orders.
//
// As in FastTrack (Flanagan, Freund 2009), a cell holds the last writer and few readers: a barrier orders all threads of
// a block, so within an interval two readers of different threads, of different warps where there are such,
// are enough to find a later write's race.
#pragma once

#include <sys/mman.h>

#include "state.h"

inline Cell* map_cells(u64 count) {
  void* cells = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return cells == MAP_FAILED ? nullptr : static_cast<Cell*>(cells);
}

inline void drop_cells(Region& region) {
  if (region.cells) munmap(region.cells, region.cell_count * sizeof(Cell));
  region.cells = nullptr;
}

inline void set_region(Region& region, char* start, u64 bytes, u32 space) {
  if (region.cells && region.start == start && (bytes >> region.granule) < region.cell_count) {
    region.bytes = bytes;
    return;
  }
  drop_cells(region);
  u64 count = bytes / 4 + 1;
  region = {start, bytes, space, 2, count, map_cells(count)};
}

inline void refine(Region& region, u32 granule) {
  u32 shift = region.granule - granule;
  u64 count = region.cell_count << shift;
  Cell* finer = map_cells(count);
  for (u64 i = 0; i < region.cell_count; ++i)
    if (region.cells[i].writer.epoch | region.cells[i].first_reader.epoch | region.cells[i].reader[0].epoch)
      for (u64 j = 0; j < u64(1) << shift; ++j) finer[(i << shift) + j] = region.cells[i];
  drop_cells(region);
  region.cells = finer;
  region.cell_count = count;
  region.granule = granule;
}

inline bool within_block_ordered(const Access& before) {
  if (before.epoch < S.epoch) return true;
  if (before.flags & MANY_THREADS) return false;
  if (before.thread == S.running) return true;
  if (before.thread / WARP != S.running / WARP) return false;
  return S.clock[S.running / WARP][S.running % WARP][before.thread % WARP] > before.clock;
}

// The oldest epoch that can still race: shared memory dies with its block, global memory with the launch.
inline u32 horizon(const Region& region) { return region.space == SHARED ? S.block_epoch : S.launch_epoch; }

[[noreturn]] void race(const Region& region, u64 at, u32 bytes, const Access& before, const Access& now);

inline void check_against(const Region& region, u64 at, u32 bytes, const Access& before, const Access& now) {
  if (before.epoch < horizon(region)) return;
  if (before.flags & IS_PENDING) race(region, at, bytes, before, now);
  if (before.flags & now.flags & IS_ATOMIC) return;
  if (before.epoch < S.block_epoch || before.flags & MANY_BLOCKS || !within_block_ordered(before))
    race(region, at, bytes, before, now);
}

inline void remember_reader(Cell& cell, const Access& now) {
  Access &r0 = cell.reader[0], &r1 = cell.reader[1];
  if (r0.thread == now.thread || within_block_ordered(r0)) {
    r0 = now;
  } else if (r1.thread == now.thread || within_block_ordered(r1)) {
    r1 = now;
  } else if (r0.thread / WARP == r1.thread / WARP && now.thread / WARP != r1.thread / WARP) {
    r1 = now;
  }
}

inline void shadow_read(const Region& region, Cell& cell, u64 at, u32 bytes, const Access& now) {
  check_against(region, at, bytes, cell.writer, now);
  if (cell.first_reader.epoch < horizon(region)) cell.first_reader = now;
  remember_reader(cell, now);
}

inline void shadow_write(const Region& region, Cell& cell, u64 at, u32 bytes, Access now) {
  check_against(region, at, bytes, cell.writer, now);
  if (cell.first_reader.epoch < S.block_epoch) check_against(region, at, bytes, cell.first_reader, now);
  check_against(region, at, bytes, cell.reader[0], now);
  check_against(region, at, bytes, cell.reader[1], now);
  if (now.flags & cell.writer.flags & IS_ATOMIC && cell.writer.epoch >= horizon(region)) {
    if (cell.writer.epoch < S.block_epoch) now.flags |= MANY_BLOCKS;
    if (!within_block_ordered(cell.writer)) now.flags |= MANY_THREADS;
    now.flags |= cell.writer.flags & MANY_BLOCKS;
  }
  cell.writer = now;
}

inline Access access_now(u32 pc, u32 mode) {
  static constexpr u16 FLAGS[] = {0, WRITES, WRITES | IS_ATOMIC, WRITES | IS_PENDING};
  u32 lane = S.running % WARP;
  u32 fences = static_cast<u32>(S.threads[S.running].fences.size());
  return {pc, S.epoch, S.clock[S.running / WARP][lane][lane], fences, static_cast<u16>(S.running), FLAGS[mode]};
}

inline void shadow_access(Region& region, u64 offset, u32 bytes, u32 mode, u32 pc) {
  while (region.granule && ((offset | bytes) & ((1u << region.granule) - 1))) refine(region, region.granule - 1);
  Access now = access_now(pc, mode);
  for (u64 i = offset >> region.granule, end = (offset + bytes) >> region.granule; i < end; ++i) {
    if (mode == READ)
      shadow_read(region, region.cells[i], offset, bytes, now);
    else
      shadow_write(region, region.cells[i], offset, bytes, now);
  }
}

// An asynchronous copy has arrived: from here on it is a write of its thread in this interval.
inline void shadow_arrived(Region& region, u64 offset, u32 bytes, u32 pc) {
  Access now = access_now(pc, WRITE);
  for (u64 i = offset >> region.granule, end = (offset + bytes) >> region.granule; i < end; ++i)
    region.cells[i].writer = now;
}
