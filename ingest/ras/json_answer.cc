#include "ingest/ras/json_answer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace lockstep::ras {
namespace {

using Json = nlohmann::json;

// The end of the value that begins here with a brace; npos: it is cut off.
std::size_t EndOfObject(std::string_view text) {
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// NCCL 2.28.9 leaves out commas behind a value where another key follows.
std::string WithCommas(std::string_view text) {
  std::string whole;
  whole.reserve(text.size());
  bool in_text = false;
  char before = '{';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\' && i + 1 < text.size()) {
        whole += c;
        whole += text[++i];
        continue;
      }
      in_text = c != '"';
    } else if (c == '"' || c == '{') {
      if (before != '{' && before != '[' && before != ',' && before != ':') whole += ',';
      in_text = c == '"';
    }
    whole += c;
    if (std::isspace(static_cast<unsigned char>(c)) == 0) before = c;
  }
  return whole;
}

const Json& At(const Json& json, const char* key) {
  static const Json none;
  if (!json.is_object()) return none;
  const auto at = json.find(key);
  return at == json.end() ? none : *at;
}

std::int64_t IntegerOf(const Json& json, std::int64_t otherwise) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    return value <= INT64_MAX ? static_cast<std::int64_t>(value) : otherwise;
  }
  return json.is_number_integer() ? json.get<std::int64_t>() : otherwise;
}

bool TrueAt(const Json& json, const char* key) {
  const Json& value = At(json, key);
  return value.is_boolean() && value.get<bool>();
}

std::string TextIn(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }

// "2025-12-19 13:06:53".
std::int64_t TimeOf(const std::string& text) {
  std::int64_t parts[6] = {};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < 6; ++i) {
    if (i > 0 && (at == end || *at++ != " -- ::"[i])) return kNotKnown;
    const auto [stop, error] = std::from_chars(at, end, parts[i]);
    if (error != std::errc() || parts[i] < 0 || parts[i] > 9999) return kNotKnown;
    at = stop;
  }
  const auto [year, month, day, hour, minute, second] = parts;
  // Also what nanoseconds in 64 bits do not hold.
  if (year < 1970 || year > 2200 || month < 1 || month > 12 || day > 31 || hour > 24 || minute > 60 || second > 60)
    return kNotKnown;
  // Days of the civil calendar since 1970-03-01, whose years begin in March.
  const std::int64_t y = month < 3 ? year - 1 : year, m = (month + 9) % 12;
  const std::int64_t days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719469;
  return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1'000'000'000;
}

std::string ErrorOf(std::int64_t code) {
  // ncclResult_t; 0 and 7 are success and "in progress".
  static constexpr const char* kWords[] = {"",
                                           "unhandled CUDA error",
                                           "system error",
                                           "internal error",
                                           "invalid argument",
                                           "invalid usage",
                                           "remote process error",
                                           ""};
  if (code < 0) return "";
  return code < 8 ? kWords[code] : "error " + std::to_string(code);
}

Process ProcessIn(const Json& json) {
  Process process{.host = TextIn(At(json, "host"))};
  if (process.host == "unknown") process.host.clear();
  process.pid = IntegerOf(At(json, "pid"), -1);
  const auto number = [&](const char* key) {
    const std::int64_t gpu = IntegerOf(At(json, key), -1);
    return gpu >= 0 && gpu < 4096 ? static_cast<std::int32_t>(gpu) : -1;
  };
  process.cuda = number("cuda_dev");
  process.gpu = number("nvml_dev") >= 0 ? number("nvml_dev") : process.cuda;
  return process;
}

Status StatusIn(const Json& status) {
  if (!status.is_object()) return Status::kUnknown;
  if (TrueAt(status, "abort_flag")) return Status::kAbort;
  if (TrueAt(status, "finalize_called") || TrueAt(status, "destroy_flag")) return Status::kFinalize;
  return IntegerOf(At(status, "init_state"), 0) == 0 ? Status::kRunning : Status::kInit;
}

CommRank RankOf(const Json& json, bool missing) {
  CommRank rank{.process = ProcessIn(json)};
  const std::int64_t number = IntegerOf(At(json, "rank"), -1);
  if (number >= 0 && number < kMostRanks) rank.rank = static_cast<std::int32_t>(number);
  const Json& status = At(json, "status");
  if (missing) {
    rank.dead = TrueAt(status, "considered_dead");
    rank.silent = rank.dead || TrueAt(status, "unresponsive");
    if (!rank.silent) rank.status = Status::kNoMember;
    return rank;
  }
  rank.status = StatusIn(status);
  rank.error = ErrorOf(IntegerOf(At(status, "init_state"), 0));
  if (rank.error.empty()) rank.error = ErrorOf(IntegerOf(At(status, "async_error"), 0));
  const Json& counts = At(json, "collective_counts");
  if (counts.is_object())
    for (const auto& [name, count] : counts.items()) {
      // Messages need not be as many on all ranks.
      if (name.starts_with("Send") || name.starts_with("Recv")) continue;
      // Far from what a sum of them could not hold.
      const std::int64_t value = IntegerOf(count, kNotKnown);
      if (value >= 0) rank.counts[KindOf(name)] = std::min(value, std::int64_t{1} << 48);
      if (rank.counts.size() >= 64) break;
    }
  return rank;
}

Communicator CommunicatorOf(const Json& json) {
  Communicator communicator{.hash = PlainHash(TextIn(At(json, "hash"))), .counts_are_whole = true};
  for (const char* list : {"ranks", "missing_ranks"}) {
    const Json& ranks = At(json, list);
    if (!ranks.is_array()) continue;
    for (const Json& each : ranks)
      if (CommRank rank = RankOf(each, list[0] == 'm'); rank.rank >= 0) communicator.ranks.push_back(std::move(rank));
  }
  std::stable_sort(communicator.ranks.begin(), communicator.ranks.end(),
                   [](const CommRank& a, const CommRank& b) { return a.rank < b.rank; });
  communicator.ranks.erase(std::unique(communicator.ranks.begin(), communicator.ranks.end(),
                                       [](const CommRank& a, const CommRank& b) { return a.rank == b.rank; }),
                           communicator.ranks.end());
  const std::int64_t least = communicator.ranks.empty() ? 0 : communicator.ranks.back().rank + 1;
  communicator.size = static_cast<std::int32_t>(std::clamp(IntegerOf(At(json, "size"), least), least, kMostRanks));
  return communicator;
}

Answer AnswerOf(const Json& json) {
  Answer answer;
  answer.told_ns = TimeOf(TextIn(At(json, "timestamp")));
  std::set<std::string> hashes;
  for (const Json& each : At(json, "communicators")) {
    Communicator communicator = CommunicatorOf(each);
    // Hashes may collide; the second one is there for that.
    if (!hashes.insert(communicator.hash).second) communicator.hash += ":" + TextIn(At(each, "secondary_hash"));
    answer.communicators.push_back(std::move(communicator));
  }
  return answer;
}

}  // namespace

Result<std::vector<Answer>> ReadJsonAnswers(std::string_view text) {
  const Error cut{ErrorCode::kMalformed, "the answer of RAS is cut off", "", "ask it again"};
  std::vector<Answer> answers;
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{')) {
    text.remove_prefix(at);
    const std::size_t end = EndOfObject(text);
    if (end == std::string_view::npos) {
      if (answers.empty()) return cut;
      answers.back().cut_off = true;  // The one behind it.
      break;
    }
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end);
    Json json = Json::parse(one, nullptr, false);
    if (json.is_discarded()) json = Json::parse(WithCommas(one), nullptr, false);
    if (json.is_discarded())
      return Error{ErrorCode::kMalformed, "the answer of RAS is damaged", "", "ask it again (ncclras -f json)"};
    if (At(json, "communicators").is_array()) answers.push_back(AnswerOf(json));
  }
  if (answers.empty())
    return Error{ErrorCode::kMalformed, "this is no answer of NCCL's RAS", "", "name what ncclras -f json printed"};
  return answers;
}

}  // namespace lockstep::ras
