#include "export/common/writers.h"

namespace lockstep::exporters {

const std::vector<Format>& Formats() {
  static const std::vector<Format> kFormats = {
#define LS_FORMAT(maker, name, summary, output, directory, stacks) \
  {name, summary, output, directory, Make##maker##Writer, {}, stacks},
#ifdef LOCKSTEP_OTF2
#define LS_OTF2_FORMAT LS_FORMAT
#else
#define LS_OTF2_FORMAT(maker, name, summary, output, directory, stacks) \
  {name, summary, output, directory, nullptr, "apt-get install libotf2-trace-dev, then build lockstep again", stacks},
#endif
#include "export/formats.def"
#undef LS_FORMAT
#undef LS_OTF2_FORMAT
  };
  return kFormats;
}

const Format* FindFormat(std::string_view name) {
  for (const Format& format : Formats())
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace lockstep::exporters
