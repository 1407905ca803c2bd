// wgmma: products of a warpgroup, whose factors the asynchronous proxy reads from shared memory by matrix descriptors.
//
// Decoded as the PTX ISA has it ("Asynchronous Warpgroup Level Matrix Shared Memory Layout"): start address, leading and stride
// byte offsets, swizzling mode. A product may read and add at any moment from its issue to the wait for its group: runs take
// the earliest or the latest. What it reads was written before a fence.proxy.async of the writer and a barrier after that;
// until it is waited for, nothing may write what it reads, nor touch its sums.
#pragma once

#include "warp.h"

constexpr u32 GROUP = 128, GROUP_DEPTH = 16, SUM_ROWS = 64;

struct Matrix {
  u32 start, leading, stride, mode, turned;
  // The byte offset in shared memory of the element in row `r` (column, of the right factor) and step `k`.
  u32 at(u32 r, u32 k) const {
    u32 bits = mode ? 4 - mode : 0, width = 16u << bits, each = width / 2, place;
    if (!mode)
      place = turned ? r % 8 * 2 + r / 8 * stride + k % 8 * 16 + k / 8 * leading : r % 8 * 16 + r / 8 * stride + k / 8 * leading + k % 8 * 2;
    else
      place = turned ? r % each * 2 + r / each * leading + k % 8 * width + k / 8 * stride : r % 8 * width + r / 8 * stride + k * 2;
    place += start;
    return place ^ (place >> 7 & ((1u << bits) - 1)) << 4;
  }
};

struct GroupProduct {
  u32 first, columns, half, landed, pc;
  Matrix left, right;
  std::vector<u32> pieces;  // of 16 bytes, of both factors
  float* sums[GROUP];
};

inline Region& described() { return S.shared.bytes ? S.shared : S.static_shared; }

[[noreturn]] inline void bad_product(u32 kind, u32 thread, u32 pc, const char* text) {
  S.running = thread;
  Fault& fault = new_fault(kind, pc);
  snprintf(fault.text, sizeof fault.text, "%s", text);
  abandon();
}

// ---- registers

inline void touch_sums(const char* address, u32 bytes, u32 pc) {
  for (Sums& sums : S.thread->sums) {
    auto* start = reinterpret_cast<const char*>(sums.start);
    if (address >= start + sums.count * sizeof(float) || address + bytes <= start) continue;
    if (sums.pending) bad_product(SUMS, S.running, pc, "touches sums of a wgmma that it has not waited for");
    sums.touched = true;
  }
}

inline void issue_sums(float* start, u32 count, u32 pc) {
  if (!S.thread->fenced) bad_product(SUMS, S.running, pc, "adds to registers without a wgmma.fence before");
  for (Sums& sums : S.thread->sums) {
    if (sums.start != start) continue;
    if (sums.touched) bad_product(SUMS, S.running, pc, "adds to registers that were touched since the last wgmma.fence");
    ++sums.pending;
    return;
  }
  S.thread->sums.push_back({start, count, 1, false});
}

// ---- shared memory

// The bytes that a product still reads are written.
inline void written_while_read(const Region& region, u64 offset, u32 bytes, u32 mode, u32 pc) {
  for (u64 piece = offset / 16; piece <= (offset + bytes - 1) / 16; ++piece)
    if (S.reading[piece]) {
      Fault& fault = new_fault(PRODUCT, pc);
      fault.space = SHARED;
      fault.mode = mode == ASYNC ? WRITES | IS_PENDING : WRITES;
      fault.address = offset;
      fault.bytes = bytes;
      fault.extent = region.bytes;
      abandon();
    }
}

// Whether the asynchronous proxy sees what `writer` wrote: behind a fence of its thread, and a barrier after that.
inline bool seen_by_proxy(const Access& writer) {
  const auto& fences = S.threads[writer.thread].fences;
  return fences.size() > writer.fences && fences[writer.fences] < S.epoch;
}

inline void read_piece(Region& region, u32 piece, u32 pc) {
  u64 offset = u64(piece) * 16;
  if (offset + 16 > region.bytes) bad_access(OUTSIDE, &region, region.start + offset, 16, READ, pc);
  Access now = access_now(pc, READ);
  for (u64 i = offset >> region.granule, end = (offset + 16) >> region.granule; i < end; ++i) {
    const Access& writer = region.cells[i].writer;
    if (writer.epoch < S.block_epoch) continue;
    if (writer.flags & IS_PENDING || writer.epoch == S.epoch) race(region, offset, 16, writer, now);
    if (seen_by_proxy(writer)) continue;
    Fault& fault = new_fault(PROXY, pc);
    fault.space = SHARED;
    fault.other_pc = writer.pc;
    fault.other_thread = writer.thread;
    fault.other_mode = writer.flags;
    fault.address = offset;
    fault.bytes = 16;
    fault.extent = region.bytes;
    abandon();
  }
  ++S.reading[piece];
  ++S.reading_count;
}

inline Matrix decode(u64 d, bool turned, u32 thread, u32 pc) {
  if (d >> 49 & 7) bad_product(LANE, thread, pc, "a matrix descriptor has a base offset, which the shim does not know");
  return {static_cast<u32>(d & 0x3fff) << 4, static_cast<u32>(d >> 16 & 0x3fff) << 4, static_cast<u32>(d >> 32 & 0x3fff) << 4,
          static_cast<u32>(d >> 62), turned};
}

inline void gather_pieces(GroupProduct& p, const Matrix& m, u32 rows) {
  for (u32 r = 0; r < rows; r += m.turned ? 8 : 1)
    for (u32 k = 0; k < GROUP_DEPTH; k += m.turned ? 1 : 8) p.pieces.push_back(m.at(r, k) / 16);
}

inline float element(const Region& region, const Matrix& m, u32 r, u32 k, bool half) {
  u16 bits;
  memcpy(&bits, region.start + m.at(r, k), 2);
  return half ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Products are exact; their sum is taken in double and rounded once.
inline void compute(GroupProduct& p) {
  const Region& region = described();
  static float a[SUM_ROWS][GROUP_DEPTH], b[256][GROUP_DEPTH];
  for (u32 k = 0; k < GROUP_DEPTH; ++k) {
    for (u32 r = 0; r < SUM_ROWS; ++r) a[r][k] = element(region, p.left, r, k, p.half);
    for (u32 c = 0; c < p.columns; ++c) b[c][k] = element(region, p.right, c, k, p.half);
  }
  for (u32 t = 0; t < GROUP; ++t)
    for (u32 i = 0; i < p.columns / 2; ++i) {
      u32 row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
      double sum = 0;
      for (u32 k = 0; k < GROUP_DEPTH; ++k) sum += static_cast<double>(a[row][k]) * b[column][k];
      p.sums[t][i] = static_cast<float>(sum + p.sums[t][i]);
    }
}

inline void serve_product(u32 first) {
  Thread* threads = &S.threads[first];
  const WarpRequest& r = threads[0].request;
  auto p = std::make_shared<GroupProduct>();
  p->first = first;
  p->columns = static_cast<u32>(r.lane);
  p->half = static_cast<u32>(r.width);
  p->pc = threads[0].pc;
  u64 left = r.bits, right = r.more;
  for (u32 t = 0; t < GROUP; ++t) {
    const WarpRequest& other = threads[t].request;
    if (other.bits != left || other.more != right) bad_product(LANE, first + t, threads[t].pc, "its matrix descriptors are not those of the other threads");
    p->sums[t] = static_cast<float*>(other.operand[0]);
  }
  p->left = decode(left, r.predicate & 1, first, p->pc);
  p->right = decode(right, r.predicate & 2, first, p->pc);
  gather_pieces(*p, p->left, SUM_ROWS);
  gather_pieces(*p, p->right, p->columns);
  for (u32 i = 0; i < p->pieces.size(); ++i) {
    S.running = first + i % GROUP;
    read_piece(described(), p->pieces[i], p->pc);
  }
  if (!S.launch->late) compute(*p);
  count_event(p->pc, MATRIX_OPS);
  for (u32 t = 0; t < GROUP; ++t) {
    threads[t].products.push_back({p, threads[t].open_products});
    threads[t].state = READY;
  }
}

// Serves the product that thread t waits in, if all threads of its group have come to it.
inline void try_group(u32 t) {
  u32 first = t / GROUP * GROUP;
  if (first + GROUP > S.thread_count) bad_product(LANE, t, S.threads[t].pc, "a wgmma needs a group of 128 threads");
  const Thread& mine = S.threads[t];
  for (u32 u = first; u < first + GROUP; ++u) {
    const Thread& other = S.threads[u];
    if (other.state != AT_WARP_OP || other.request.op != GROUP_OP || other.request.lane != mine.request.lane) return;
    if (other.pc != mine.pc && !S.launch->same_place(other.pc, mine.pc)) return;
  }
  serve_product(first);
}

// The groups below `end` have added up: from here on their threads may touch the sums, and write what was read.
inline void land_products(u32 end, u32 pc) {
  auto& products = S.thread->products;
  Region& region = described();
  size_t kept = 0;
  for (auto& [p, group] : products) {
    if (group >= end) {
      products[kept++] = {p, group};
      continue;
    }
    if (!p->landed++ && S.launch->late) compute(*p);
    for (u32 i = S.running - p->first; i < p->pieces.size(); i += GROUP) {
      --S.reading[p->pieces[i]];
      --S.reading_count;
      shadow_access(region, u64(p->pieces[i]) * 16, 16, READ, pc);
    }
    for (Sums& sums : S.thread->sums)
      if (sums.start == p->sums[S.running - p->first]) --sums.pending;
  }
  products.resize(kept);
}

// ---- the operations as the text calls them

extern "C" void tlm_shim_fence_proxy_async() { S.thread->fences.push_back(S.epoch); }

extern "C" unsigned tlm_shim_shared_address(const void* pointer) {
  Region& region = described();
  u64 offset = static_cast<u64>(static_cast<const char*>(pointer) - region.start);
  if (offset >= region.bytes) bad_access(OUTSIDE, nullptr, static_cast<const char*>(pointer), 16, READ, CALLER);
  return static_cast<u32>(offset);
}

extern "C" void tlm_shim_wgmma_fence() {
  S.thread->fenced = true;
  for (Sums& sums : S.thread->sums) sums.touched = false;
}

extern "C" void tlm_shim_wgmma(int half, int columns, float* sums, unsigned long long left, unsigned long long right, int turned) {
  issue_sums(sums, static_cast<u32>(columns) / 2, CALLER);
  warp_operation(CALLER, {GROUP_OP, ~0u, columns, half, turned, left, {sums, nullptr, nullptr, nullptr}, right});
}

extern "C" void tlm_shim_wgmma_commit() { ++S.thread->open_products; }

extern "C" void tlm_shim_wgmma_wait_group(int pending) {
  u32 kept = static_cast<u32>(pending), committed = S.thread->open_products;
  land_products(committed > kept ? committed - kept : 0, CALLER);
}
