// Fibers: stacks and a switch between them. Saves what the C calling conventions say a callee keeps, nothing else.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

constexpr size_t STACK_BYTES = 256 * 1024;
constexpr size_t PAGE = 64 * 1024;  // a multiple of every page size in use

// Stores the stack pointer of the running fiber in *save and goes on where `load` was saved.
extern "C" void tlm_shim_switch(void** save, void* load);

#if defined(__x86_64__)
asm(R"(
.text
.globl tlm_shim_switch
.hidden tlm_shim_switch
.type tlm_shim_switch, @function
tlm_shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tlm_shim_switch, .-tlm_shim_switch
)");

inline void* fresh_stack(char* stack, void (*entry)()) {
  auto* top = reinterpret_cast<uint64_t*>(stack + STACK_BYTES);
  top[-1] = 0;  // where a caller would have left its return address: keeps the stack aligned as after a call
  top[-2] = reinterpret_cast<uint64_t>(entry);
  for (int i = 3; i <= 8; ++i) top[-i] = 0;
  return top - 8;
}
#elif defined(__aarch64__)
asm(R"(
.text
.globl tlm_shim_switch
.hidden tlm_shim_switch
.type tlm_shim_switch, %function
tlm_shim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size tlm_shim_switch, .-tlm_shim_switch
)");

inline void* fresh_stack(char* stack, void (*entry)()) {
  auto* frame = reinterpret_cast<uint64_t*>(stack + STACK_BYTES) - 20;
  for (int i = 0; i < 20; ++i) frame[i] = 0;
  frame[11] = reinterpret_cast<uint64_t>(entry);  // x30
  return frame;
}
#else
#error "the fibers of the shim know x86-64 and aarch64"
#endif

// A stack with an unmapped page below it, so that an overflow stops there. Never returned: threads reuse them.
inline char* map_stack() {
  void* low = mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) return nullptr;
  mprotect(low, PAGE, PROT_NONE);
  return static_cast<char*>(low) + PAGE;
}
