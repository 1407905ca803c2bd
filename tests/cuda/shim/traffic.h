// Memory traffic by place: what the accesses of a warp cost against the least that they could.
//
// Threads run one after the other, so accesses are logged and matched afterwards: the n-th run of one instruction by each
// lane of a warp, between two barriers, is one request. Global memory moves sectors of 32 bytes. Shared memory has 32
// banks of 4 bytes; a request of 8 bytes a lane is served by half-warps and one of 16 by quarter-warps, each as often as
// the fullest bank has different words.
#pragma once

#include <vector>

#include "state.h"

constexpr u64 SECTOR = 32;
constexpr u32 BANKS = 32, LOG_CAPACITY = 1 << 15;

struct Request {
  u64 address[WARP];
  u32 lanes, bytes;
};

struct Traffic {
  std::vector<Count> counts;
  std::vector<u32> index;  // place * COUNT_KINDS + kind -> position in counts, plus one
  std::vector<std::vector<Request>> requests;  // of the warp at hand, by position
  std::vector<u32> seen;                       // runs of the lane at hand, by position
  std::vector<u32> touched;
};
extern Traffic T;

inline u32 count_position(u32 pc, u32 kind) {
  u64 key = u64(pc) * COUNT_KINDS + kind;
  if (key >= T.index.size()) T.index.resize(key + 4096);
  if (!T.index[key]) {
    T.counts.push_back({pc, kind, 0, 0, 0});
    T.requests.emplace_back();
    T.seen.push_back(0);
    T.index[key] = static_cast<u32>(T.counts.size());
  }
  return T.index[key] - 1;
}

inline void count_event(u32 pc, u32 kind) { ++T.counts[count_position(pc, kind)].requests; }

// At most 64 different numbers.
struct SmallSet {
  u64 values[2 * WARP];
  u32 size = 0;
  bool add(u64 value) {
    for (u32 i = size; i-- > 0;)
      if (values[i] == value) return false;
    values[size++] = value;
    return true;
  }
};

inline void count_global(Count& count, const Request& r) {
  SmallSet sectors, starts;
  for (u32 lane = 0; lane < WARP; ++lane) {
    if (!(r.lanes >> lane & 1)) continue;
    starts.add(r.address[lane]);
    sectors.add(r.address[lane] / SECTOR);
    sectors.add((r.address[lane] + r.bytes - 1) / SECTOR);
  }
  count.transactions += sectors.size;
  count.ideal += (u64(starts.size) * r.bytes + SECTOR - 1) / SECTOR;
}

inline void count_shared(Count& count, const Request& r) {
  u32 words = (r.bytes + 3) / 4, lanes = words <= 1 ? WARP : words == 2 ? WARP / 2 : WARP / 4;
  for (u32 from = 0; from < WARP; from += lanes) {
    SmallSet different;
    u32 in_bank[BANKS] = {}, fullest = 0;
    for (u32 lane = from; lane < from + lanes; ++lane) {
      if (!(r.lanes >> lane & 1)) continue;
      for (u32 w = 0; w < words; ++w) {
        u64 word = r.address[lane] / 4 + w;
        if (!different.add(word)) continue;
        u32 here = ++in_bank[word % BANKS];
        if (here > fullest) fullest = here;
      }
    }
    count.transactions += fullest;
    count.ideal += (different.size + BANKS - 1) / BANKS;
  }
}

inline void gather_lane(Thread& thread, u32 lane) {
  for (const Log& entry : thread.log) {
    u32 position = count_position(entry.pc, entry.kind), n = T.seen[position]++;
    auto& requests = T.requests[position];
    if (requests.empty()) T.touched.push_back(position);
    if (n >= requests.size()) requests.push_back({{}, 0, entry.bytes});
    requests[n].address[lane] = entry.address;
    requests[n].lanes |= 1u << lane;
  }
  for (u32 position : T.touched) T.seen[position] = 0;
  thread.log.clear();
}

// Counts what the threads of the block logged since the last barrier.
inline void count_interval() {
  for (u32 first = 0; first < S.thread_count; first += WARP) {
    for (u32 t = first; t < first + WARP && t < S.thread_count; ++t) gather_lane(S.threads[t], t - first);
    for (u32 position : T.touched) {
      Count& count = T.counts[position];
      for (const Request& r : T.requests[position])
        count.kind <= GLOBAL_WRITE ? count_global(count, r) : count_shared(count, r);
      count.requests += T.requests[position].size();
      T.requests[position].clear();
    }
    T.touched.clear();
  }
}

inline void log_access(u32 pc, u32 kind, const void* address, u32 bytes) {
  auto& log = S.thread->log;
  if (log.size() >= LOG_CAPACITY) {
    S.truncated = true;
    return;
  }
  for (u32 done = 0; done < bytes; done += 16) {
    u16 piece = static_cast<u16>(bytes - done < 16 ? bytes - done : 16);
    log.push_back({reinterpret_cast<u64>(address) + done, pc, piece, static_cast<u8>(kind), 0});
  }
}
