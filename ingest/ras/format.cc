// Recognises and reads answers of NCCL's RAS.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/own_file.h"
#include "ingest/dump_file.h"
#include "ingest/progress_format.h"
#include "ingest/ras/combine.h"
#include "ingest/ras/json_answer.h"
#include "ingest/ras/text_answer.h"

namespace lockstep::ingest {
namespace {

// The JSON has some 600 bytes for each rank of each communicator.
constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;
// Files whose times differ by less were copied without them: two questions take longer.
constexpr std::int64_t kLeastApartNs = 500'000'000;

bool NamedLike(std::string_view path) {
  const std::string_view name = BaseName(path);
  return name.starts_with("ncclras") || name.starts_with("nccl_ras") || name.starts_with("rcclras");
}

bool IsJson(std::string_view head) {
  return head.find("\"communicators\"") != std::string_view::npos &&
         (head.find("ccl_version\"") != std::string_view::npos ||
          head.find("\"ranks_count\"") != std::string_view::npos);
}
bool IsText(std::string_view head) {
  return head.find("Job summary\n===") != std::string_view::npos ||
         head.find("Job summary\r\n===") != std::string_view::npos;
}

bool LooksLike(const FileLook& look) { return !look.gzip && (IsText(look.head) || IsJson(look.head)); }

Result<std::vector<ras::Answer>> ReadFile(const DumpFile& file) {
  LS_TRY(const std::string bytes, ReadDumpFile(file.path, kMostBytes));
  if (bytes.empty()) return Error{ErrorCode::kMalformed, "the file is empty", "", "ask RAS again"};
  // A JSON may stand behind a banner of text.
  Result<std::vector<ras::Answer>> answers = IsJson(bytes) ? ras::ReadJsonAnswers(bytes) : ras::ReadTextAnswers(bytes);
  if (!answers.ok()) return answers;
  for (ras::Answer& answer : answers.value()) answer.name = file.name;
  // The last one was made when the file was.
  if (file.modified_ns > 0) answers.value().back().time_ns = file.modified_ns;
  return answers;
}

// Puts all on the clock of the files' times; what they tell themselves has no time zone.
void SetTimes(std::vector<ras::Answer>& answers) {
  const bool told = std::all_of(answers.begin(), answers.end(),
                                [](const ras::Answer& answer) { return answer.told_ns != ras::kNotKnown; });
  if (told) {
    std::stable_sort(answers.begin(), answers.end(),
                     [](const ras::Answer& a, const ras::Answer& b) { return a.told_ns < b.told_ns; });
    const std::int64_t last_ns = answers.back().time_ns, told_ns = answers.back().told_ns;
    for (ras::Answer& answer : answers)
      answer.time_ns = last_ns == ras::kNotKnown ? ras::kNotKnown : last_ns - (told_ns - answer.told_ns);
    return;
  }
  const bool timed = std::all_of(answers.begin(), answers.end(),
                                 [](const ras::Answer& answer) { return answer.time_ns != ras::kNotKnown; });
  if (timed)
    std::stable_sort(answers.begin(), answers.end(),
                     [](const ras::Answer& a, const ras::Answer& b) { return a.time_ns < b.time_ns; });
  for (std::size_t i = 0; i + 1 < answers.size(); ++i)
    if (answers[i + 1].time_ns - answers[i].time_ns < kLeastApartNs) answers[i].time_ns = ras::kNotKnown;
}

Result<ReadProgress> Read(const std::vector<DumpFile>& files, unsigned) {
  ReadProgress read;
  std::vector<ras::Answer> answers;
  Error first{ErrorCode::kNotFound, "there is no answer of RAS", "", ""};
  for (const DumpFile& file : files) {
    Result<std::vector<ras::Answer>> some = ReadFile(file);
    if (some.ok()) {
      std::move(some.value().begin(), some.value().end(), std::back_inserter(answers));
      continue;
    }
    if (first.where.empty()) {
      first = some.error();
      first.where = file.name + (first.where.empty() ? "" : ", " + first.where);
    }
    read.notes.push_back(file.name + ": " + some.error().what);
  }
  if (answers.empty()) return first;
  SetTimes(answers);
  const bool unread = !read.notes.empty();
  read.progress = ras::Combine(answers, read.notes);
  if (unread && read.progress.open == hang::Open::kNothing) read.progress.open = hang::Open::kUnreadFiles;
  read.used = read.progress.ranks.size();
  return read;
}

}  // namespace

extern const ProgressFormat kRasFormat;
const ProgressFormat kRasFormat = {
    .name = "nccl_ras",
    .program = "NCCL's RAS",
    .what = "NCCL RAS answers",
    .named_like = NamedLike,
    .looks_like = LooksLike,
    .read = Read,
};

}  // namespace lockstep::ingest
