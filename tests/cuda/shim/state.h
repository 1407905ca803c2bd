// What a run knows: threads of the present block, memory regions with their shadow, and the fault that ended it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "fibers.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr u32 WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP;
constexpr u64 SHARED_CAPACITY = 256 * 1024;
// Arrays lie far apart, so that an address with a wrapped 32-bit index is not in some other array.
constexpr u64 SLOT_BYTES = u64(1) << 33, SLOT_LEAD = u64(1) << 32;

enum Space : u32 { GLOBAL, SHARED };
enum Mode : u32 { READ, WRITE, ATOMIC, ASYNC };
enum FaultKind : u32 { NONE, RACE, BLOCKS_RACE, PENDING, OUTSIDE, MISALIGNED, LOCAL_INDEX, BARRIER, WARP_OP, LANE, NO_MEMORY, PROXY, SUMS, PRODUCT };
enum ThreadState : u32 { READY, AT_BARRIER, AT_WARP_OP, EXITED };

// One access as the shadow remembers it. `epoch` counts barriers over the whole run (0: none yet), so that
// intervals of earlier blocks and launches are older than the present one's first epoch without clearing anything.
// `fences`: how many fences of the asynchronous proxy its thread had made.
struct Access {
  u32 pc, epoch, clock, fences;
  u16 thread, flags;
};
enum AccessFlags : u16 { WRITES = 1, IS_ATOMIC = 2, IS_PENDING = 4, MANY_THREADS = 8, MANY_BLOCKS = 16 };

struct Cell {
  Access writer, first_reader, reader[2];
};

// `granule` (log2 of the bytes of a cell) is 4 bytes until a smaller access arrives, then the cells are split.
struct Region {
  char* start;
  u64 bytes;
  u32 space, granule;
  u64 cell_count;
  Cell* cells;
};

// The layouts of Fault, Count and Launch are mirrored in shim.py.
struct Fault {
  u32 kind, space, region, mode, other_mode, pc, other_pc, thread, other_thread, unused;
  u64 block, other_block, address, bytes, extent;
  char text[96];
};

struct Count {
  u32 pc, kind;
  u64 requests, transactions, ideal;
};
enum CountKind : u32 { GLOBAL_READ, GLOBAL_WRITE, SHARED_READ, SHARED_WRITE, BARRIERS, WARP_OPS, MATRIX_OPS, COUNT_KINDS };

struct Launch {
  void (*entry)(void**);
  void** arguments;
  u32 grid[3], block[3];
  u32 shared_bytes, order, late, unused;
  char *static_shared, *static_shared_end, *image;
  int (*same_place)(u32, u32);
};
enum Order : u32 { FORWARD, WARP_DEPTH_FIRST, REVERSED };

struct Log {
  u64 address;
  u32 pc;
  u16 bytes;
  u8 kind, unused;
};

struct Copy {
  char* shared;
  const char* global;
  u32 size, bytes, pc, group;
};

struct WarpRequest {
  u32 op, mask;
  int lane, width, predicate;
  u64 bits;
  void* operand[4];
  u64 more = 0;
};

// Registers to which products of a warpgroup add; `pending` of these are not waited for.
struct Sums {
  float* start;
  u32 count, pending;
  bool touched;
};

struct GroupProduct;
struct Issued {
  std::shared_ptr<GroupProduct> product;
  u32 group;
};

struct Thread {
  void* stack_pointer;
  char* stack;
  u32 state, pc, index[3], barrier_kind;
  WarpRequest request;
  std::vector<Log> log;
  std::vector<Copy> copies;
  u32 open_group;
  std::vector<u32> fences;  // the epochs of its fences of the asynchronous proxy
  std::vector<Sums> sums;
  std::vector<Issued> products;
  u32 open_products;
  bool fenced;
};

struct State {
  const Launch* launch;
  void* main_stack_pointer;
  Thread* thread;  // the running one
  u32 thread_count, running, exited, at_barrier;
  u32 block[3];
  u64 block_number;
  u32 epoch, launch_epoch, block_epoch;
  u32 clock[MAX_WARPS][WARP][WARP];  // vector clocks of the lanes of a warp, advanced by __syncwarp
  Thread threads[MAX_THREADS];
  Region shared, static_shared;
  std::vector<Region> arrays;
  char* arena;
  u64 arena_bytes;
  std::vector<u32> block_epochs;  // first epoch of each block of the run, and its number
  std::vector<u64> block_numbers;
  Fault fault;
  bool truncated;
  u32 reading[SHARED_CAPACITY / 16];  // products that still read each piece of 16 bytes of shared memory
  u64 reading_count;
};

extern State S;
inline u32 place(const void* return_address) {
  return static_cast<u32>(static_cast<const char*>(return_address) - S.launch->image);
}
#define CALLER place(__builtin_return_address(0))

// Leaves the running fiber for good where there is one: the run has ended with a fault.
[[noreturn]] void abandon();
