#pragma once
// The registry of losses as code. The list is core/loss.def.

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Severity : std::uint8_t { kNotice, kDataLoss };
enum class Loss : std::uint16_t {
#define LS_LOSS(name, severity, sentence, remedy) k##name,
#include "core/loss.def"
#undef LS_LOSS
};
struct LossInfo {
  std::string_view name;  // As stored in the `losses` tables.
  Severity severity;
  std::string_view sentence, remedy;
};
inline constexpr LossInfo kLosses[] = {
#define LS_LOSS(name, severity, sentence, remedy) {#name, Severity::severity, sentence, remedy},
#include "core/loss.def"
#undef LS_LOSS
};
constexpr const LossInfo& Info(Loss loss) { return kLosses[static_cast<std::uint16_t>(loss)]; }
// Null if a newer version wrote it.
constexpr const LossInfo* FindLoss(std::string_view name) {
  for (const LossInfo& info : kLosses)
    if (info.name == name) return &info;
  return nullptr;
}

}  // namespace lockstep
