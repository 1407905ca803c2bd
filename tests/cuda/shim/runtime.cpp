// Runs CUDA kernels on the CPU: one fiber a thread, blocks one after the other. See tlm_shim.h for what a kernel may use.
//
// Built without sanitizers into a library of its own; kernels are built with -fsanitize=thread and find the hooks here.

#include "async.h"
#include "group.h"

State S;
Traffic T;

namespace {
struct Ended {};  // thrown on the main stack when the run has a fault
}

void abandon() {
  if (!S.thread) throw Ended{};
  void* never_resumed;
  tlm_shim_switch(&never_resumed, S.main_stack_pointer);
  __builtin_unreachable();
}

void wait_as(u32 state, u32 pc) {
  S.thread->state = state;
  S.thread->pc = pc;
  tlm_shim_switch(&S.thread->stack_pointer, S.main_stack_pointer);
}

static void thread_main() {
  S.launch->entry(S.launch->arguments);
  land_copies(~0u);
  wait_as(EXITED, 0);
}

// ---- what the text calls

extern "C" unsigned tlm_shim_thread(int axis) { return S.thread->index[axis]; }
extern "C" unsigned tlm_shim_block(int axis) { return S.block[axis]; }
extern "C" unsigned tlm_shim_block_size(int axis) { return S.launch->block[axis]; }
extern "C" unsigned tlm_shim_grid_size(int axis) { return S.launch->grid[axis]; }
extern "C" void tlm_shim_fence() {}

extern "C" int tlm_shim_barrier(int kind, int predicate) {
  S.thread->barrier_kind = static_cast<u32>(kind);
  S.thread->request.predicate = predicate != 0;
  wait_as(AT_BARRIER, CALLER);
  return S.thread->request.predicate;
}

template <class X, class F>
static inline X atomic(X* p, u32 pc, F next) {
  access(p, sizeof(X), sizeof(X), ATOMIC, pc);
  X old = *p;
  *p = next(old);
  return old;
}
#define TLM_SHIM_ATOMIC_ADD(X) X atomicAdd(X* p, X v) { return atomic(p, CALLER, [=](X x) { return x + v; }); }
#define TLM_SHIM_ATOMIC_EXCHANGE(X) X atomicExch(X* p, X v) { return atomic(p, CALLER, [=](X) { return v; }); }
#define TLM_SHIM_ATOMICS(X)                                                                        \
  TLM_SHIM_ATOMIC_ADD(X)                                                                           \
  TLM_SHIM_ATOMIC_EXCHANGE(X)                                                                      \
  X atomicMax(X* p, X v) { return atomic(p, CALLER, [=](X x) { return x < v ? v : x; }); }         \
  X atomicMin(X* p, X v) { return atomic(p, CALLER, [=](X x) { return v < x ? v : x; }); }         \
  X atomicCAS(X* p, X from, X to) { return atomic(p, CALLER, [=](X x) { return x == from ? to : x; }); }
TLM_SHIM_ATOMICS(int)
TLM_SHIM_ATOMICS(unsigned)
TLM_SHIM_ATOMICS(unsigned long long)
TLM_SHIM_ATOMIC_ADD(float)
TLM_SHIM_ATOMIC_ADD(double)
TLM_SHIM_ATOMIC_EXCHANGE(float)

// ---- the scheduler

[[noreturn]] static void stuck(u32 kind, u32 thread) {
  Fault& fault = new_fault(kind, S.threads[thread].pc);
  fault.thread = thread;
  abandon();
}

static int barrier_value(u32 kind) {
  int count = 0;
  for (u32 t = 0; t < S.thread_count; ++t) count += S.threads[t].request.predicate;
  if (kind == TLM_SHIM_AND) return count == static_cast<int>(S.thread_count);
  return kind == TLM_SHIM_OR ? count != 0 : count;
}

static void try_barrier() {
  if (!S.at_barrier || S.at_barrier + S.exited < S.thread_count) return;
  u32 waiting = 0;
  while (S.threads[waiting].state != AT_BARRIER) ++waiting;
  if (S.exited) stuck(BARRIER, waiting);
  const Thread& first = S.threads[0];
  for (u32 t = 1; t < S.thread_count; ++t) {
    const Thread& other = S.threads[t];
    if (other.barrier_kind != first.barrier_kind) stuck(BARRIER, t);
    if (other.pc != first.pc && !S.launch->same_place(first.pc, other.pc)) stuck(BARRIER, t);
  }
  count_event(first.pc, BARRIERS);
  count_interval();
  int value = barrier_value(first.barrier_kind);
  for (u32 t = 0; t < S.thread_count; ++t) {
    S.threads[t].request.predicate = value;
    S.threads[t].state = READY;
  }
  S.at_barrier = 0;
  ++S.epoch;
}

static void resume(u32 t) {
  S.running = t;
  S.thread = &S.threads[t];
  tlm_shim_switch(&S.main_stack_pointer, S.thread->stack_pointer);
  S.thread = nullptr;
  if (S.fault.kind) throw Ended{};
  switch (S.threads[t].state) {
    case AT_WARP_OP: try_warp(t); break;
    case AT_BARRIER: ++S.at_barrier; break;
    case EXITED: {
      ++S.exited;
      u32 first = t / WARP * WARP;
      for (u32 u = first; u < first + WARP && u < S.thread_count; ++u)
        if (S.threads[u].state == AT_WARP_OP) try_warp(u);
    }
  }
  try_barrier();
}

// Threads in `order`, in groups of so many: a group goes on until none of its threads can, then the next one.
static void schedule(const std::vector<u32>& order, u32 group) {
  bool any = true;
  while (any) {
    any = false;
    for (u32 from = 0; from < S.thread_count; from += group) {
      for (bool progress = true; progress;) {
        progress = false;
        for (u32 i = from; i < from + group && i < S.thread_count; ++i) {
          if (S.threads[order[i]].state != READY) continue;
          resume(order[i]);
          progress = any = true;
        }
      }
    }
  }
  if (S.exited == S.thread_count) return;
  u32 waiting = 0;
  for (u32 t = S.thread_count; t-- > 0;)
    if (S.threads[t].state == AT_WARP_OP || (S.threads[t].state == AT_BARRIER && S.threads[waiting].state != AT_WARP_OP)) waiting = t;
  stuck(S.threads[waiting].state == AT_WARP_OP ? WARP_OP : BARRIER, waiting);
}

static void start_threads() {
  const u32* size = S.launch->block;
  for (u32 t = 0; t < S.thread_count; ++t) {
    Thread& thread = S.threads[t];
    if (!thread.stack && !(thread.stack = map_stack())) stuck(NO_MEMORY, t);
    thread.stack_pointer = fresh_stack(thread.stack, thread_main);
    thread.state = READY;
    thread.index[0] = t % size[0];
    thread.index[1] = t / size[0] % size[1];
    thread.index[2] = t / size[0] / size[1];
    thread.copies.clear();
    thread.open_group = 0;
    thread.fences.clear();
    thread.sums.clear();
    thread.products.clear();
    thread.open_products = 0;
    thread.fenced = false;
    thread.log.clear();
  }
  S.exited = S.at_barrier = 0;
  if (S.reading_count) memset(S.reading, 0, sizeof S.reading);
  S.reading_count = 0;
}

static void run_block(u64 number, const std::vector<u32>& order, u32 group) {
  const u32* grid = S.launch->grid;
  S.block_number = number;
  S.block[0] = static_cast<u32>(number % grid[0]);
  S.block[1] = static_cast<u32>(number / grid[0] % grid[1]);
  S.block[2] = static_cast<u32>(number / grid[0] / grid[1]);
  S.block_epoch = ++S.epoch;
  S.block_epochs.push_back(S.epoch);
  S.block_numbers.push_back(number);
  // Bytes of ones are NaN in every floating type: a value that no thread wrote cannot pass for a result.
  memset(tlm_shim_dynamic, 0xff, S.launch->shared_bytes);
  if (S.static_shared.bytes) memset(S.static_shared.start, 0xff, S.static_shared.bytes);
  start_threads();
  schedule(order, group);
  count_interval();
}

static void run_blocks() {
  const Launch& launch = *S.launch;
  S.thread_count = launch.block[0] * launch.block[1] * launch.block[2];
  std::vector<u32> order(S.thread_count);
  for (u32 t = 0; t < S.thread_count; ++t) order[t] = launch.order == REVERSED ? S.thread_count - 1 - t : t;
  u64 blocks = u64(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  S.launch_epoch = S.epoch + 1;
  for (u64 b = 0; b < blocks; ++b)
    run_block(launch.order == REVERSED ? blocks - 1 - b : b, order, launch.order == WARP_DEPTH_FIRST ? WARP : S.thread_count);
}

// ---- what shim.py calls

// Ends the present run, if any, and frees its arrays.
extern "C" void tlm_shim_close() {
  for (Region& region : S.arrays) drop_cells(region);
  S.arrays.clear();
  for (Thread& thread : S.threads)
    if (thread.log.capacity() > 4096) std::vector<Log>().swap(thread.log);
  if (S.arena) munmap(S.arena, S.arena_bytes);
  S.arena = nullptr;
  S.arena_bytes = 0;
}

// Begins a run with arrays of so many bytes; their addresses go to `starts`. Returns false where memory is short.
extern "C" bool tlm_shim_open(u64 count, const u64* bytes, void** starts) {
  tlm_shim_close();
  T = {};
  S.epoch = 0;
  S.truncated = false;
  S.fault = {};
  S.block_epochs.clear();
  S.block_numbers.clear();
  drop_cells(S.shared);
  drop_cells(S.static_shared);
  void* arena = mmap(nullptr, (count + 1) * SLOT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return false;
  S.arena = static_cast<char*>(arena);
  S.arena_bytes = (count + 1) * SLOT_BYTES;
  S.arrays.resize(count + 1);  // the last one is empty, for addresses beyond the arrays
  for (u64 i = 0; i <= count; ++i) {
    char* start = S.arena + i * SLOT_BYTES + SLOT_LEAD;
    u64 size = i < count ? bytes[i] : 0;
    if (size && mprotect(start, (size + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE)) return false;
    set_region(S.arrays[i], start, size, GLOBAL);
    if (i < count) starts[i] = start;
  }
  return true;
}

// Runs one kernel to its end or to its first fault. Returns the kind of the fault, 0 for none.
extern "C" u32 tlm_shim_launch(const Launch* launch) {
  S.launch = launch;
  S.thread = nullptr;
  set_region(S.shared, reinterpret_cast<char*>(tlm_shim_dynamic), launch->shared_bytes, SHARED);
  set_region(S.static_shared, launch->static_shared, static_cast<u64>(launch->static_shared_end - launch->static_shared), SHARED);
  try {
    run_blocks();
  } catch (const Ended&) {
  }
  return S.fault.kind;
}

extern "C" void tlm_shim_fault(Fault* out) { *out = S.fault; }

// The places and states of the threads of the block in which the run ended; returns how many there are.
extern "C" u32 tlm_shim_threads(u32* states, u32* places) {
  for (u32 t = 0; t < S.thread_count; ++t) {
    states[t] = S.threads[t].state;
    places[t] = S.threads[t].pc;
  }
  return S.thread_count;
}

extern "C" u64 tlm_shim_count_size() { return T.counts.size(); }
extern "C" bool tlm_shim_counts(Count* out) {
  memcpy(out, T.counts.data(), T.counts.size() * sizeof(Count));
  return S.truncated;
}
