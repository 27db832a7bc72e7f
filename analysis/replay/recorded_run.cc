#include "analysis/replay/recorded_run.h"

#include "analysis/replay/host_run.h"

namespace lockstep::replay {

Result<std::unique_ptr<RecordedRun>> ReadRun(const Timeline& timeline, const ReadRunOptions& options) {
  LS_TRY(HostRun run, ReadHostRun(timeline, options));
  return std::unique_ptr<RecordedRun>(std::make_unique<HostRun>(std::move(run)));
}

}  // namespace lockstep::replay
