// The names that the application calls. Each is one jump through a slot, which passes every register and the stack on
// as they are, so that it serves all ABIs: their arguments differ in type, and are all integers or addresses. At first
// the slots lead to the choice (choose.cc), then to the wrappers of the MPI library that the process has loaded, or to
// that library itself.
//
// Functions that not every library has are indirect (STT_GNU_IFUNC): where the library lacks one, so does the process,
// as without Lockstep (mpi4py's wheel asks by weak references).

#include "comms/pmpi/choose.h"
#include "comms/pmpi/names.h"

// clang-format off
#if defined(__x86_64__)
asm(R"(
  .macro lockstep_stub symbol
  .pushsection .text.lockstep_stubs, "ax", @progbits
  .balign 16
lockstep_stub_\symbol:
  jmp *lockstep_slot_\symbol(%rip)
lockstep_first_\symbol:
  leaq lockstep_slot_\symbol(%rip), %r11
  jmp lockstep_first_call
  .popsection
  .pushsection lockstep_slots, "aw", @progbits
  .balign 8
lockstep_slot_\symbol:
  .quad lockstep_first_\symbol
  .popsection
  .endm

  .macro lockstep_always symbol
  lockstep_stub \symbol
  .globl \symbol
  .type \symbol, @function
  .set \symbol, lockstep_stub_\symbol
  .endm

  .macro lockstep_where_it_is symbol
  lockstep_stub \symbol
  .pushsection .rodata.lockstep_names, "a", @progbits
lockstep_name_\symbol:
  .asciz "\symbol"
  .popsection
  .pushsection .text.lockstep_stubs, "ax", @progbits
  .globl \symbol
  .type \symbol, @gnu_indirect_function
\symbol:
  leaq lockstep_name_\symbol(%rip), %rdi
  leaq lockstep_stub_\symbol(%rip), %rsi
  jmp lockstep_where_it_is
  .popsection
  .endm

  .pushsection .text.lockstep_stubs, "ax", @progbits
  .type lockstep_first_call, @function
lockstep_first_call:
  .cfi_startproc
  pushq %rax
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  .cfi_adjust_cfa_offset 56
  movq %r11, %rdi
  movq 56(%rsp), %rsi
  call lockstep_first_target
  movq %rax, %r11
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  .cfi_adjust_cfa_offset -56
  jmp *%r11
  .cfi_endproc
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .macro lockstep_stub symbol
  .pushsection .text.lockstep_stubs, "ax", %progbits
  .balign 16
lockstep_stub_\symbol:
  adrp x16, lockstep_slot_\symbol
  add x16, x16, :lo12:lockstep_slot_\symbol
  ldar x17, [x16]
  br x17
lockstep_first_\symbol:
  adrp x16, lockstep_slot_\symbol
  add x16, x16, :lo12:lockstep_slot_\symbol
  b lockstep_first_call
  .popsection
  .pushsection lockstep_slots, "aw", %progbits
  .balign 8
lockstep_slot_\symbol:
  .xword lockstep_first_\symbol
  .popsection
  .endm

  .macro lockstep_always symbol
  lockstep_stub \symbol
  .globl \symbol
  .type \symbol, %function
  .set \symbol, lockstep_stub_\symbol
  .endm

  .macro lockstep_where_it_is symbol
  lockstep_stub \symbol
  .pushsection .rodata.lockstep_names, "a", %progbits
lockstep_name_\symbol:
  .asciz "\symbol"
  .popsection
  .pushsection .text.lockstep_stubs, "ax", %progbits
  .balign 4
  .globl \symbol
  .type \symbol, %gnu_indirect_function
\symbol:
  adrp x0, lockstep_name_\symbol
  add x0, x0, :lo12:lockstep_name_\symbol
  adrp x1, lockstep_stub_\symbol
  add x1, x1, :lo12:lockstep_stub_\symbol
  b lockstep_where_it_is
  .popsection
  .endm

  .pushsection .text.lockstep_stubs, "ax", %progbits
  .balign 4
  .type lockstep_first_call, %function
lockstep_first_call:
  .cfi_startproc
  stp x29, x30, [sp, #-96]!
  .cfi_adjust_cfa_offset 96
  .cfi_offset x30, -88
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  mov x0, x16
  mov x1, x30
  bl lockstep_first_target
  mov x17, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp x29, x30, [sp], #96
  .cfi_restore x30
  .cfi_adjust_cfa_offset -96
  br x17
  .cfi_endproc
  .popsection
)");
#else
#error "comms/pmpi/CMakeLists.txt builds the MPI wrappers for x86-64 and aarch64 only"
#endif

#define LS_ALWAYS(name) asm("lockstep_always MPI_" #name); asm("lockstep_always PMPI_" #name);
#define LS_WHERE_IT_IS(name) asm("lockstep_where_it_is MPI_" #name); asm("lockstep_where_it_is PMPI_" #name);
#define LS_EXPERIMENTAL(name) asm("lockstep_where_it_is MPIX_" #name); asm("lockstep_where_it_is PMPIX_" #name);
LS_MPI_ENTRY_POINTS(LS_ALWAYS, LS_WHERE_IT_IS, LS_EXPERIMENTAL, LS_WHERE_IT_IS)
// clang-format on
