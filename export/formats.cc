// The formats of `lockstep export`, the default first.

#include "export/common/writers.h"

namespace lockstep::exporters {

const std::vector<Format>& Formats() {
  static const std::vector<Format> kFormats = {
      {"perfetto", "one timeline for ui.perfetto.dev", "timeline.pftrace", false, MakePerfettoWriter, {}},
      {"chrome", "the same as JSON, for other viewers", "timeline.json", false, MakeChromeWriter, {}},
      {"kineto", "a trace per rank, for Holistic Trace Analysis and TensorBoard", "kineto", true, MakeKinetoWriter, {}},
      {"csv", "a file per table", "csv", true, MakeCsvWriter, {}},
#ifdef LOCKSTEP_OTF2
      {"otf2", "an archive for Vampir and Scalasca", "otf2", true, MakeOtf2Writer, {}},
#else
      {"otf2", "an archive for Vampir and Scalasca", "otf2", true, nullptr,
       "apt-get install libotf2-trace-dev, then build lockstep again"},
#endif
      {"speedscope",
       "sampled stacks, for speedscope.app",
       "stacks.speedscope.json",
       false,
       MakeSpeedscopeWriter,
       {},
       true},
      {"collapsed", "the same as lines, for flamegraph.pl", "stacks.collapsed", false, MakeCollapsedWriter, {}, true},
  };
  return kFormats;
}

const Format* FindFormat(std::string_view name) {
  for (const Format& format : Formats())
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace lockstep::exporters
