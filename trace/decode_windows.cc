// Capture windows.

#include "trace/process_decoder.h"

namespace lockstep {

void ProcessDecoder::OnWindow(Thread& thread, const WindowRecord& record) {
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  Touch(thread, ns, ns);
  window_marks_.push_back({ns, record.step, record.cause, (record.head.flags & 1) != 0, record.cut != 0});
}

void ProcessDecoder::MakeWindows() {}

}  // namespace lockstep
