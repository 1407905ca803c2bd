// cp.async: a copy lands anywhere between its issue and the wait for its group, so runs take the earliest or the latest moment.
//
// Until it is waited for, its target is pending: any access to it is a fault, whatever the moment of this run.
#pragma once

#include "checks.h"

inline void move_data(const Copy& copy) {
  memcpy(copy.shared, copy.global, copy.bytes);
  memset(copy.shared + copy.bytes, 0, copy.size - copy.bytes);
}

// Lands the copies of all groups below `end`.
inline void land_copies(u32 end) {
  auto& copies = S.thread->copies;
  size_t kept = 0;
  for (const Copy& copy : copies) {
    if (copy.group >= end) {
      copies[kept++] = copy;
      continue;
    }
    if (S.launch->late) move_data(copy);
    Region* region = locate(copy.shared);
    shadow_arrived(*region, static_cast<u64>(copy.shared - region->start), copy.size, copy.pc);
  }
  copies.resize(kept);
}

inline void require_space(const Region* region, u32 space, const void* pointer, u32 bytes, u32 mode, u32 pc) {
  if (!region || region->space != space) bad_access(OUTSIDE, nullptr, static_cast<const char*>(pointer), bytes, mode, pc);
}

extern "C" void tlm_shim_cp_async(void* shared, const void* global, int size, int bytes) {
  u32 pc = CALLER, whole = static_cast<u32>(size), read = static_cast<u32>(bytes);
  require_space(access(shared, whole, whole, ASYNC, pc), SHARED, shared, whole, WRITE, pc);
  if (read) require_space(access(global, read, whole, READ, pc), GLOBAL, global, read, READ, pc);
  Copy copy{static_cast<char*>(shared), static_cast<const char*>(global), whole, read, pc, S.thread->open_group};
  if (!S.launch->late) move_data(copy);
  S.thread->copies.push_back(copy);
}

extern "C" void tlm_shim_cp_async_commit() { ++S.thread->open_group; }

extern "C" void tlm_shim_cp_async_wait_group(int pending) {
  u32 kept = static_cast<u32>(pending), committed = S.thread->open_group;
  land_copies(committed > kept ? committed - kept : 0);
}

extern "C" void tlm_shim_cp_async_wait_all() { land_copies(~0u); }
