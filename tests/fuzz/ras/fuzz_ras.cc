// Whatever answers of RAS hold: no finding of a sanitizer, no hang, and an answer that names ranks of the job only. The
// input is what two files would hold, divided by a NUL byte; a JSON begins with a brace.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/judged.h"
#include "ingest/ras/combine.h"
#include "ingest/ras/json_answer.h"
#include "ingest/ras/text_answer.h"

namespace {

using namespace lockstep;

void Read(std::string_view text, std::vector<ras::Answer>& answers) {
  Result<std::vector<ras::Answer>> read =
      text.starts_with('{') ? ras::ReadJsonAnswers(text) : ras::ReadTextAnswers(text);
  if (!read.ok()) {
    fuzz::MustHold(!read.error().what.empty() && !read.error().hint.empty(), "an error without words");
    return;
  }
  fuzz::MustHold(!read.value().empty(), "neither an answer nor an error");
  for (ras::Answer& answer : read.value()) {
    answer.time_ns = static_cast<std::int64_t>(answers.size()) * 10'000'000'000;
    answers.push_back(std::move(answer));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<ras::Answer> answers;
  const std::size_t end = input.find('\0');
  Read(input.substr(0, end), answers);
  if (end != std::string_view::npos) Read(input.substr(end + 1), answers);
  if (answers.empty()) return 0;
  std::vector<std::string> notes;
  fuzz::CheckProgress(ras::Combine(answers, notes));
  return 0;
}
