#include "ingest/formats.h"

namespace lockstep::ingest {

#define LS_RANK_FORMAT(format)
#define LS_PROGRESS_FORMAT(format)
#define LS_FOREIGN_FORMAT(format) extern const ForeignFormat format;
#include "ingest/formats.def"
#undef LS_FOREIGN_FORMAT

namespace {
#define LS_FOREIGN_FORMAT(format) &format,
const ForeignFormat* const kFormats[] = {
#include "ingest/formats.def"
};
#undef LS_FOREIGN_FORMAT
#undef LS_PROGRESS_FORMAT
#undef LS_RANK_FORMAT
}  // namespace

std::span<const ForeignFormat* const> ForeignFormats() { return kFormats; }

const ForeignFormat* FindFormat(std::string_view name) {
  for (const ForeignFormat* format : kFormats)
    if (format->name == name) return format;
  return nullptr;
}

}  // namespace lockstep::ingest
