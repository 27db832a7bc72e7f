#pragma once
// Numbers and names of core/blocked_calls.def.

#include <cstdint>
#include <string_view>

namespace lockstep {

#define LS_ANY_CALL_(number, name, ...) name = number,
#define LS_PLAIN_CALL LS_ANY_CALL_
#define LS_WAITING_CALL LS_ANY_CALL_
#define LS_LOCKING_CALL LS_ANY_CALL_
enum class BlockedCall : std::uint16_t {
#include "core/blocked_calls.def"
};
#undef LS_ANY_CALL_

// Empty: a number that this version does not know.
constexpr std::string_view NameOf(BlockedCall call) {
#define LS_ANY_CALL_(number, name, ...) \
  case BlockedCall::name:               \
    return #name;
#define LS_PLAIN_CALL LS_ANY_CALL_
#define LS_WAITING_CALL LS_ANY_CALL_
#define LS_LOCKING_CALL LS_ANY_CALL_
  switch (call) {
#include "core/blocked_calls.def"
  }
#undef LS_ANY_CALL_
  return {};
}

}  // namespace lockstep
