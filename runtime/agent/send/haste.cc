#include "runtime/agent/send/haste.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "comms/clock/quiet_thread.h"

namespace lockstep::agent {
namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false, sent = false;
};

}  // namespace

bool SendInHaste(FileSender::Setup setup, const FileToSend& file, std::int64_t limit_ms) {
  setup.why = clock::FilesWhy::kHaste;
  setup.stall_ms = limit_ms;
  const auto progress = std::make_shared<Progress>();
  // A call may take longer than there is time, wherever it waits, so nobody waits for this thread's end.
  clock::QuietThread([progress, setup = std::move(setup), file] {
    const SendEnd end = FileSender(setup).Send({file}).end;
    const std::lock_guard lock(progress->mutex);
    progress->over = true;
    progress->sent = end == SendEnd::kSent;
    progress->changed.notify_all();
  }).detach();
  std::unique_lock lock(progress->mutex);
  progress->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return progress->over; });
  return progress->sent;
}

}  // namespace lockstep::agent
