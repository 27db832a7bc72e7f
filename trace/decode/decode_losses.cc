// Losses that sources inside the application reported.

#include <algorithm>

#include "trace/decode/process_decoder.h"

namespace lockstep::trace {

using schema::kNone;
using schema::kNoTime;

void ProcessDecoder::OnLoss(Thread& thread, const LossRecord& record) {
  const std::uint32_t name = TextOfThread(thread, record.name);
  if (name == kNone) {
    ++unknown_records_;
    return;
  }
  const std::int64_t first = record.first_ticks == 0 ? kNoTime : thread.clock.Ns(record.first_ticks);
  const std::int64_t last = record.last_ticks == 0 ? first : thread.clock.Ns(record.last_ticks);
  const auto [at, fresh] =
      told_losses_.try_emplace({name, record.detail == 0 ? kNone : TextOfThread(thread, record.detail)});
  ToldLoss& loss = at->second;
  loss.seen.Add(record.count, first, last);
  if (fresh)
    loss.thread = thread.row;
  else if (loss.thread != thread.row)
    loss.thread = kNone;
}

void ProcessDecoder::AddToldLosses() {
  for (const auto& [key, told] : told_losses_) {
    const std::string name(TextOf(tables_, key.first)), detail(TextOf(tables_, key.second));
    if (const LossInfo* info = FindLoss(name))
      AddLoss(static_cast<Loss>(info - kLosses), told.seen, detail, told.thread);
    else
      AddLoss(Loss::kUnknownRecord, told.seen, name, told.thread);
  }
}

}  // namespace lockstep::trace
