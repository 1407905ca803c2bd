// Warp operations: lanes deposit what they bring and stop; when the last one of the mask has arrived, all are served.
#pragma once

#include "checks.h"
#include "numbers.h"
#include "tlm_shim_operations.h"

enum WarpOp : u32 { SHUFFLE_OP = 0, VOTE_OP = 16, LDMATRIX_OP = 32, MMA_OP = 64, GROUP_OP = 128 };

void wait_as(u32 state, u32 pc);  // stops the running thread until the scheduler serves it

inline u64 warp_operation(u32 pc, const WarpRequest& request) {
  u32 lane = S.running % WARP;
  if (!(request.mask >> lane & 1)) {
    Fault& fault = new_fault(LANE, pc);
    snprintf(fault.text, sizeof fault.text, "the mask 0x%08x does not name the calling lane %u", request.mask, lane);
    abandon();
  }
  S.thread->request = request;
  wait_as(AT_WARP_OP, pc);
  return S.thread->request.bits;
}

inline u32 existing_lanes(u32 warp) {
  u32 lanes = 0;
  for (u32 lane = 0; lane < WARP; ++lane) {
    u32 t = warp * WARP + lane;
    if (t < S.thread_count && S.threads[t].state != EXITED) lanes |= 1u << lane;
  }
  return lanes;
}

[[noreturn]] void fail_lane(u32 thread, const char* format, u32 x, u32 y) {
  Fault& fault = new_fault(LANE, S.threads[thread].pc);
  fault.thread = thread;
  snprintf(fault.text, sizeof fault.text, format, x, y);
  abandon();
}

inline u32 shuffle_source(const WarpRequest& r, u32 lane) {
  u32 width = static_cast<u32>(r.width), first = lane & ~(width - 1), last = first + width - 1;
  int l = static_cast<int>(lane);
  switch (r.op - SHUFFLE_OP) {
    case TLM_SHIM_UP: return l - r.lane < static_cast<int>(first) ? lane : lane - static_cast<u32>(r.lane);
    case TLM_SHIM_DOWN: return lane + static_cast<u32>(r.lane) > last ? lane : lane + static_cast<u32>(r.lane);
    case TLM_SHIM_XOR: {
      u32 source = lane ^ static_cast<u32>(r.lane);
      return source > last ? lane : source;
    }
    default: return first | (static_cast<u32>(r.lane) & (width - 1));
  }
}

inline void serve_shuffle(Thread* lanes, u32 group, u32 first) {
  u64 bits[WARP];
  for (u32 lane = 0; lane < WARP; ++lane)
    if (group >> lane & 1) bits[lane] = lanes[lane].request.bits;
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(group >> lane & 1)) continue;
    u32 source = shuffle_source(lanes[lane].request, lane);
    if (source >= WARP || !(group >> source & 1))
      fail_lane(first + lane, "lane %u reads the value of lane %u, which takes no part (exited, absent or not in the mask)", lane, source);
    lanes[lane].request.bits = bits[source];
  }
}

inline void serve_vote(Thread* lanes, u32 group, u32 warp) {
  u32 ballot = 0;
  for (u32 lane = 0; lane < WARP; ++lane)
    if (group >> lane & 1 && lanes[lane].request.predicate) ballot |= 1u << lane;
  u32 kind = 0;
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(group >> lane & 1)) continue;
    kind = lanes[lane].request.op - VOTE_OP;
    lanes[lane].request.bits = kind == TLM_SHIM_ANY ? ballot != 0 : kind == TLM_SHIM_ALL ? ballot == group : ballot;
  }
  if (kind != TLM_SHIM_SYNC) return;
  auto& clock = S.clock[warp];
  u32 joined[WARP] = {};
  for (u32 lane = 0; lane < WARP; ++lane)
    if (group >> lane & 1) ++clock[lane][lane];
  for (u32 lane = 0; lane < WARP; ++lane)
    for (u32 other = 0; group >> lane & 1 && other < WARP; ++other)
      if (clock[lane][other] > joined[other]) joined[other] = clock[lane][other];
  for (u32 lane = 0; lane < WARP; ++lane)
    if (group >> lane & 1) memcpy(clock[lane], joined, sizeof joined);
}

inline void serve_ldmatrix(Thread* lanes, bool transposed, u32 count) {
  u16 matrix[4][8][8];
  for (u32 i = 0; i < 8 * count; ++i) memcpy(matrix[i / 8][i % 8], lanes[i].request.operand[1], 16);
  for (u32 lane = 0; lane < WARP; ++lane) {
    auto* d = static_cast<u32*>(lanes[lane].request.operand[0]);
    u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < count; ++i) {
      auto& m = matrix[i];
      d[i] = transposed ? m[2 * t][g] | u32(m[2 * t + 1][g]) << 16 : m[g][2 * t] | u32(m[g][2 * t + 1]) << 16;
    }
  }
}

typedef float (*ReadHalf)(u16);

// A fragment register of 16-bit elements holds the pair (row, 2c), (row, 2c + 1) of a matrix of rows by k.
inline void unpack_halves(float* out, u32 k, u32 row, u32 column, u32 pair, ReadHalf read) {
  out[row * k + column] = read(static_cast<u16>(pair));
  out[row * k + column + 1] = read(static_cast<u16>(pair >> 16));
}

inline void gather_halves(Thread* lanes, float* a, float* b, u32 k, ReadHalf read) {
  for (u32 lane = 0; lane < WARP; ++lane) {
    auto* ra = static_cast<const u32*>(lanes[lane].request.operand[1]);
    auto* rb = static_cast<const u32*>(lanes[lane].request.operand[2]);
    u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < k / 4; ++i) unpack_halves(a, k, g + 8 * (i % 2), 2 * t + 8 * (i / 2), ra[i], read);
    for (u32 i = 0; i < k / 8; ++i) unpack_halves(b, k, g, 2 * t + 8 * i, rb[i], read);
  }
}

inline void gather_tf32(Thread* lanes, float* a, float* b, u32 k) {
  for (u32 lane = 0; lane < WARP; ++lane) {
    auto* ra = static_cast<const u32*>(lanes[lane].request.operand[1]);
    auto* rb = static_cast<const u32*>(lanes[lane].request.operand[2]);
    u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < k / 2; ++i) a[(g + 8 * (i % 2)) * k + t + 4 * (i / 2)] = as_float(ra[i] & ~0x1fffu);
    for (u32 i = 0; i < k / 4; ++i) b[g * k + t + 4 * i] = as_float(rb[i] & ~0x1fffu);
  }
}

// a: 16 by k, b: 8 by k (columns of B). Products are exact; their sum is taken in double and rounded once.
inline void serve_mma(Thread* lanes, u32 shape) {
  static constexpr u32 DEPTH[] = {16, 16, 8, 8, 8, 4};
  float a[16 * 16], b[8 * 16], d[WARP][4];
  u32 k = DEPTH[shape];
  if (shape >= TLM_SHIM_K8_TF32)
    gather_tf32(lanes, a, b, k);
  else
    gather_halves(lanes, a, b, k, shape % 2 ? f16_to_f32 : bf16_to_f32);
  for (u32 lane = 0; lane < WARP; ++lane) {
    auto* c = static_cast<const float*>(lanes[lane].request.operand[3]);
    for (u32 i = 0; i < 4; ++i) {
      u32 row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
      double sum = 0;
      for (u32 x = 0; x < k; ++x) sum += static_cast<double>(a[row * k + x]) * b[column * k + x];
      d[lane][i] = static_cast<float>(sum + c[i]);
    }
  }
  for (u32 lane = 0; lane < WARP; ++lane) memcpy(lanes[lane].request.operand[0], d[lane], sizeof d[lane]);
}

inline void serve_group(u32 warp, u32 group) {
  Thread* lanes = &S.threads[warp * WARP];
  u32 leader = static_cast<u32>(__builtin_ctz(group)), op = lanes[leader].request.op;
  if (op >= LDMATRIX_OP && group != ~0u)
    fail_lane(warp * WARP + leader, "a matrix operation needs all 32 lanes of the warp, here are 0x%08x", group, 0);
  if (op < VOTE_OP)
    serve_shuffle(lanes, group, warp * WARP);
  else if (op < LDMATRIX_OP)
    serve_vote(lanes, group, warp);
  else if (op < MMA_OP)
    serve_ldmatrix(lanes, (op - LDMATRIX_OP) & 1, (op - LDMATRIX_OP) >> 1);
  else
    serve_mma(lanes, op - MMA_OP);
  count_event(lanes[leader].pc, op >= LDMATRIX_OP ? MATRIX_OPS : WARP_OPS);
  for (u32 lane = 0; lane < WARP; ++lane)
    if (group >> lane & 1) lanes[lane].state = READY;
}

void try_group(u32 t);  // group.h

// Serves the operation that thread t waits in, if all lanes of its mask that still run have come to it.
inline void try_warp(u32 t) {
  if (S.threads[t].request.op == GROUP_OP) return try_group(t);
  u32 warp = t / WARP, mask = S.threads[t].request.mask, op = S.threads[t].request.op, group = mask & existing_lanes(warp);
  Thread* lanes = &S.threads[warp * WARP];
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(group >> lane & 1)) continue;
    const Thread& other = lanes[lane];
    if (other.state != AT_WARP_OP || other.request.mask != mask || other.request.op != op) return;
    if (other.pc != S.threads[t].pc && !S.launch->same_place(other.pc, S.threads[t].pc)) return;
  }
  serve_group(warp, group);
}

// ---- the operations as the text calls them

extern "C" u64 tlm_shim_shuffle(int kind, unsigned mask, unsigned long long bits, int lane, int width) {
  return warp_operation(CALLER, {SHUFFLE_OP + static_cast<u32>(kind), mask, lane, width, 0, bits, {}});
}

extern "C" unsigned tlm_shim_vote(int kind, unsigned mask, int predicate) {
  return static_cast<u32>(warp_operation(CALLER, {VOTE_OP + static_cast<u32>(kind), mask, 0, 0, predicate, 0, {}}));
}

extern "C" unsigned tlm_shim_active_mask() { return existing_lanes(S.running / WARP); }

extern "C" void tlm_shim_ldmatrix(unsigned* d, const void* row, int count, int transposed) {
  if (S.running % WARP < 8 * static_cast<u32>(count)) {
    Region* region = access(row, 16, 16, READ, CALLER);
    if (!region || region->space != SHARED) bad_access(OUTSIDE, nullptr, static_cast<const char*>(row), 16, READ, CALLER);
  }
  u32 op = LDMATRIX_OP + 2 * static_cast<u32>(count) + static_cast<u32>(transposed);
  warp_operation(CALLER, {op, ~0u, 0, 0, 0, 0, {d, const_cast<void*>(row), nullptr, nullptr}});
}

extern "C" void tlm_shim_mma(int shape, float* d, const unsigned* a, const unsigned* b, const float* c) {
  void* operands[] = {d, const_cast<unsigned*>(a), const_cast<unsigned*>(b), const_cast<float*>(c)};
  warp_operation(CALLER, {MMA_OP + static_cast<u32>(shape), ~0u, 0, 0, 0, 0, {operands[0], operands[1], operands[2], operands[3]}});
}
