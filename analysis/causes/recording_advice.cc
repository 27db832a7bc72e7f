#include "analysis/causes/recording_advice.h"

#include <algorithm>
#include <string_view>

#include "analysis/core/source.h"
#include "core/loss.h"

namespace lockstep::analysis {
namespace {

enum class Recorder { kLockstep, kTorchProfiler, kNsys };

Recorder RecorderOf(const Context& context) {
  const Source source = SourceOf(context.timeline());
  return source.imported.empty() ? Recorder::kLockstep : source.nsys ? Recorder::kNsys : Recorder::kTorchProfiler;
}

// Whether the imported traces hold calls of Python functions that were left out.
bool HasPythonFunctions(const Context& context) {
  return std::ranges::any_of(context.tables().losses.name, [&](std::uint32_t name) {
    return context.timeline().Text(name) == Info(Loss::kImportPythonSkipped).name;
  });
}

Clause ByRecorder(const Context& context, Word torch_profiler, Word nsys, Word lockstep) {
  const Recorder recorder = RecorderOf(context);
  return Say(recorder == Recorder::kTorchProfiler ? torch_profiler : recorder == Recorder::kNsys ? nsys : lockstep);
}

}  // namespace

Clause ToNameHostWork(const Context& context) {
  switch (RecorderOf(context)) {
    case Recorder::kTorchProfiler:
      return Say(HasPythonFunctions(context) ? Word::kNameByImport : Word::kNameByTorchProfiler);
    case Recorder::kNsys:
      return Say(Word::kNameByNsys);
    default:
      return Say(SourceOf(context.timeline()).torch ? Word::kNameInTorch : Word::kNameParts);
  }
}

Clause ToRecordLater(const Context& context) {
  return ByRecorder(context, Word::kLaterByTorchProfiler, Word::kLaterByNsys, Word::kLaterByLockstep);
}
Clause ToSeeLaunches(const Context& context) {
  return ByRecorder(context, Word::kLaunchesByTorchProfiler, Word::kLaunchesByNsys, Word::kLaunchesByLockstep);
}
Clause ToSeeStarts(const Context& context) {
  return ByRecorder(context, Word::kStartsByTorchProfiler, Word::kStartsByNsys, Word::kStartsByLockstep);
}

}  // namespace lockstep::analysis
