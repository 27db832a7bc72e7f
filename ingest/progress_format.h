#pragma once
// Describes a format of dumps: files of other tools that say how far each rank of a job was at one moment, and no
// times of its steps. They are judged (hang/judge.h), not imported. Each format defines one constant of this type,
// which is named in formats.def only.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "hang/progress.h"
#include "ingest/foreign.h"

namespace lockstep::ingest {

struct DumpFile {
  std::string path, name;  // To open it; to print.
  std::int32_t rank = -1;  // That its name tells; -1 none.
  std::int64_t modified_ns = 0;
};

struct ReadProgress {
  hang::Progress progress;
  std::vector<std::string> notes;  // What is missing or odd, a sentence each.
  std::size_t used = 0;            // Ranks of which they say something.
};

struct ProgressFormat {
  std::string_view name;     // In JSON: "flight_recorder".
  std::string_view program;  // The program that writes it.
  std::string_view what;     // Its files, as the subject of a sentence: "Flight Recorder dumps".
  // Whether a file of this name is expected to have the format; if it has not, that is reported.
  bool (*named_like)(std::string_view name);
  bool (*looks_like)(const FileLook& look);
  // kMalformed: not one of the files can be read.
  Result<ReadProgress> (*read)(const std::vector<DumpFile>& files, unsigned jobs);
};

}  // namespace lockstep::ingest
