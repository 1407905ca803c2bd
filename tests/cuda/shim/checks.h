// Every access of a kernel: where it falls, its bounds and alignment, its cost, its races. Called by the sanitizer hooks.
#pragma once

#include <cstdio>

#include "shadow.h"
#include "traffic.h"

extern "C" {
alignas(1024) unsigned char tlm_shim_dynamic[SHARED_CAPACITY];
}

inline Fault& new_fault(u32 kind, u32 pc) {
  S.fault = {};
  S.fault.kind = kind;
  S.fault.pc = pc;
  S.fault.thread = S.running;
  S.fault.block = S.block_number;
  return S.fault;
}

inline u64 block_of_epoch(u32 epoch) {
  size_t low = 0, high = S.block_epochs.size();
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    (S.block_epochs[middle] <= epoch ? low : high) = middle;
  }
  return S.block_numbers[low];
}

inline u32 region_number(const Region& region) {
  return region.space == SHARED ? 0 : static_cast<u32>(&region - S.arrays.data());
}

[[noreturn]] void race(const Region& region, u64 at, u32 bytes, const Access& before, const Access& now) {
  u32 kind = before.flags & IS_PENDING ? PENDING : before.epoch < S.block_epoch || before.flags & MANY_BLOCKS ? BLOCKS_RACE : RACE;
  Fault& fault = new_fault(kind, now.pc);
  fault.space = region.space;
  fault.region = region_number(region);
  fault.mode = now.flags;
  fault.other_mode = before.flags;
  fault.other_pc = before.pc;
  fault.other_thread = before.thread;
  fault.other_block = block_of_epoch(before.epoch);
  fault.address = at;
  fault.bytes = bytes;
  fault.extent = region.bytes;
  abandon();
}

[[noreturn]] inline void bad_access(u32 kind, const Region* region, const char* address, u32 bytes, u32 mode, u32 pc) {
  Fault& fault = new_fault(kind, pc);
  fault.space = region ? region->space : ~0u;
  fault.region = region ? region_number(*region) : 0;
  fault.mode = mode == READ ? 0 : WRITES;
  fault.address = region ? static_cast<u64>(address - region->start) : reinterpret_cast<u64>(address);
  fault.bytes = bytes;
  fault.extent = region ? region->bytes : 0;
  abandon();
}

inline Region* locate(const char* address) {
  if (static_cast<u64>(address - reinterpret_cast<char*>(tlm_shim_dynamic)) < SHARED_CAPACITY) return &S.shared;
  u64 in_arena = static_cast<u64>(address - S.arena);
  if (in_arena < S.arena_bytes) return &S.arrays[in_arena / SLOT_BYTES];
  if (static_cast<u64>(address - S.static_shared.start) < S.static_shared.bytes) return &S.static_shared;
  return nullptr;
}

void touch_sums(const char* address, u32 bytes, u32 pc);
void written_while_read(const Region& region, u64 offset, u32 bytes, u32 mode, u32 pc);

// Locals of the running thread, and constants of the text (which lie before its static shared memory), need no check.
inline bool is_private(const char* address, u32 mode) {
  if (static_cast<u64>(address - S.thread->stack) < STACK_BYTES) return true;
  return mode == READ && address >= S.launch->image && address < S.launch->static_shared;
}

// `align`: what the address must be a multiple of, in bytes. Returns the region, or null for private memory.
inline Region* access(const void* pointer, u32 bytes, u32 align, u32 mode, u32 pc) {
  auto* address = static_cast<const char*>(pointer);
  if (static_cast<u64>(address - S.thread->stack) < STACK_BYTES) {
    if (!S.thread->sums.empty()) touch_sums(address, bytes, pc);
    return nullptr;
  }
  Region* region = locate(address);
  if (!region) {
    if (is_private(address, mode)) return nullptr;
    bad_access(OUTSIDE, nullptr, address, bytes, mode, pc);
  }
  u64 offset = static_cast<u64>(address - region->start);
  if (offset >= region->bytes || offset + bytes > region->bytes) bad_access(OUTSIDE, region, address, bytes, mode, pc);
  if (reinterpret_cast<u64>(address) % align) bad_access(MISALIGNED, region, address, bytes, mode, pc);
  if (S.reading_count && region->space == SHARED && mode != READ) written_while_read(*region, offset, bytes, mode, pc);
  log_access(pc, 2 * region->space + (mode != READ), address, bytes);
  shadow_access(*region, offset, bytes, mode, pc);
  return region;
}

#define TLM_SHIM_HOOK(n)                                                                                        \
  extern "C" void __tsan_read##n(void* p) { access(p, n, n, READ, CALLER); }                                   \
  extern "C" void __tsan_write##n(void* p) { access(p, n, n, WRITE, CALLER); }                                 \
  extern "C" void __tsan_unaligned_read##n(void* p) { access(p, n, 1, READ, CALLER); }                         \
  extern "C" void __tsan_unaligned_write##n(void* p) { access(p, n, 1, WRITE, CALLER); }                       \
  extern "C" void __tsan_volatile_read##n(void* p) { access(p, n, n, READ, CALLER); }                          \
  extern "C" void __tsan_volatile_write##n(void* p) { access(p, n, n, WRITE, CALLER); }
TLM_SHIM_HOOK(1)
TLM_SHIM_HOOK(2)
TLM_SHIM_HOOK(4)
TLM_SHIM_HOOK(8)
TLM_SHIM_HOOK(16)
extern "C" void __tsan_read_range(void* p, size_t n) { access(p, static_cast<u32>(n), 1, READ, CALLER); }
extern "C" void __tsan_write_range(void* p, size_t n) { access(p, static_cast<u32>(n), 1, WRITE, CALLER); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

// -fsanitize=bounds: an index outside of an array whose size the text states (registers, static shared memory).
struct SourceType {
  u16 kind, info;
  char name[1];
};
struct IndexCheck {
  const char* file;
  u32 line, column;
  const SourceType *array, *index;
};
extern "C" void __ubsan_handle_out_of_bounds(IndexCheck* check, u64 index) {
  Fault& fault = new_fault(LOCAL_INDEX, CALLER);
  snprintf(fault.text, sizeof fault.text, "index %d of %s", static_cast<int>(index), check->array->name);
  abandon();
}
