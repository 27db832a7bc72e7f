#pragma once
// The writers, each in its own file: rows of formats.def. MakeOtf2Writer is defined where OTF2 is (LOCKSTEP_OTF2).

#include <memory>

#include "export/common/writer.h"

namespace lockstep::exporters {

#define LS_FORMAT(maker, ...) std::unique_ptr<Writer> Make##maker##Writer(const WriterOptions& options);
#define LS_OTF2_FORMAT LS_FORMAT
#include "export/formats.def"
#undef LS_FORMAT
#undef LS_OTF2_FORMAT

}  // namespace lockstep::exporters
