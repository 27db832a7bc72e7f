#pragma once
// A SIGTRAP after each instruction of the calling thread. Its handler itself is not stepped.

namespace lockstep {

inline void StepSingly([[maybe_unused]] bool on) {
#if defined(__x86_64__)
  constexpr unsigned long long kTrapFlag = 0x100;
  const auto flags = __builtin_ia32_readeflags_u64();
  __builtin_ia32_writeeflags_u64(on ? flags | kTrapFlag : flags & ~kTrapFlag);
#endif
}

}  // namespace lockstep
