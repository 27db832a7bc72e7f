// Whatever dumps hold: no finding of a sanitizer, no hang, and an answer that names ranks of the job only. The input is
// the number of dumps and the length of each but the last, then the dumps.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/judged.h"
#include "ingest/flight_recorder/combine.h"
#include "ingest/flight_recorder/dump.h"

namespace {

using namespace lockstep;

std::vector<flight_recorder::RankDump> DumpsIn(std::string_view input) {
  std::vector<flight_recorder::RankDump> dumps;
  const std::size_t count = 1 + static_cast<unsigned char>(input[0]) % 4;
  input.remove_prefix(1);
  for (std::size_t i = 0; i < count && !input.empty(); ++i) {
    std::size_t bytes = input.size();
    if (i + 1 < count && input.size() >= 2) {
      bytes = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
      input.remove_prefix(2);
    }
    const std::string_view text = input.substr(0, bytes);
    input.remove_prefix(text.size());
    Result<flight_recorder::Dump> dump = flight_recorder::ReadDump(text);
    if (!dump.ok()) {
      fuzz::MustHold(!dump.error().what.empty() && !dump.error().hint.empty(), "an error without words");
      continue;
    }
    dumps.push_back({static_cast<std::int32_t>(i), 0, std::move(dump).value()});
  }
  return dumps;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<flight_recorder::RankDump> dumps =
      DumpsIn(std::string_view(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> notes;
  fuzz::CheckProgress(flight_recorder::Combine(dumps, notes));
  return 0;
}
