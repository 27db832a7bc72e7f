#include "ingest/ras/text_answer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace lockstep::ras {
namespace {

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::int64_t NumberOf(std::string_view text) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() && number >= 0 ? number : kNotKnown;
}

bool Take(std::string_view& text, std::string_view begin) {
  if (!text.starts_with(begin)) return false;
  text.remove_prefix(begin.size());
  return true;
}

// The number that the text begins with, and the space behind it.
std::int64_t TakeNumber(std::string_view& text) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return kNotKnown;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  Take(text, " ");
  return number;
}

std::int32_t TakeRank(std::string_view& text) {
  const std::int64_t rank = TakeNumber(text);
  return rank < kMostRanks ? static_cast<std::int32_t>(rank) : -1;
}

// "GPU 3 managed by process 4711 on node 10.0.0.5", with "(NVML 5)" where that number is another.
Process GpuOf(std::string_view text) {
  Process process;
  if (!Take(text, "GPU ")) return process;
  std::int64_t gpu = TakeNumber(text);
  if (gpu < 4096) process.cuda = static_cast<std::int32_t>(gpu);
  if (Take(text, "(NVML ")) {
    gpu = TakeNumber(text);
    Take(text, ") ");
  }
  if (!Take(text, "managed by process ")) return process;
  process.pid = TakeNumber(text);
  if (gpu < 4096) process.gpu = static_cast<std::int32_t>(gpu);
  if (Take(text, "on node ")) process.host = Trimmed(text);
  return process;
}

// "Process 4711 on node 10.0.0.5 managing GPU 3".
std::optional<Process> ProcessOf(std::string_view text) {
  if (!Take(text, "Process ")) return std::nullopt;
  Process process;
  process.pid = TakeNumber(text);
  constexpr std::string_view kManaging = " managing GPU";
  if (process.pid < 0 || !Take(text, "on node ")) return std::nullopt;
  const std::size_t end = text.find(kManaging);
  if (end == std::string_view::npos) return std::nullopt;
  process.host = text.substr(0, end);
  text.remove_prefix(end + kManaging.size());
  Take(text, "s");
  Take(text, " ");
  const std::int64_t gpu = NumberOf(Trimmed(text));  // Of several none is meant.
  if (gpu < 4096) process.gpu = process.cuda = static_cast<std::int32_t>(gpu);
  return process;
}

Status StatusOf(std::string_view word) {
  if (word == "INIT") return Status::kInit;
  if (word == "RUNNING") return Status::kRunning;
  if (word == "FINALIZE") return Status::kFinalize;
  if (word == "ABORT") return Status::kAbort;
  // "UNKNOWN" before 2.26.
  return word == "NOCOMM" || word == "UNKNOWN" ? Status::kNoMember : Status::kUnknown;
}

// Ranks that are alike in something.
struct Alike {
  std::int64_t count = 0, value = 0;
  Status status = Status::kUnknown;
  std::string error;
  std::vector<std::int32_t> named;  // All of them, or none.
};

class Reader {
 public:
  // `members_left`: so many may all communicators of all answers have.
  Reader(std::string_view text, std::int64_t& members_left) : text_(text), members_left_(members_left) {}

  Answer Read() {
    while (!text_.empty()) {
      const std::size_t end = text_.find('\n');
      Line(text_.substr(0, end));
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    }
    CloseTopic();
    for (auto& each : found_)
      if (each.size > 0) answer_.communicators.push_back(Whole(each));
    answer_.cut_off = !warnings_begun_;
    return std::move(answer_);
  }

 private:
  enum class Section : std::uint8_t { kNone, kSummary, kTable, kErrors, kWarnings };
  enum class Topic : std::uint8_t { kNone, kSilent, kErrors, kStatus, kCounts };

  struct Found {
    std::string hash;
    std::int32_t size = 0;
    std::int64_t silent = 0;  // So many.
    std::map<std::int32_t, CommRank> ranks;
    std::vector<std::pair<std::string, std::vector<Alike>>> counts;  // By kind.
    std::vector<Alike> status;
  };

  void Line(std::string_view line) {
    const std::string_view text = Trimmed(line);
    if (text == "Job summary") return Enter(Section::kSummary);
    if (text.starts_with("Communicators...")) return Enter(Section::kTable);
    if (text == "Errors") return Enter(Section::kErrors);
    if (text == "Warnings") {
      warnings_begun_ = true;
      return Enter(Section::kWarnings);
    }
    switch (section_) {
      case Section::kNone:
        break;
      case Section::kSummary:
        SummaryLine(text);
        break;
      case Section::kTable:
        TableLine(text);
        break;
      case Section::kErrors:
      case Section::kWarnings:
        Finding(text);
    }
  }

  void Enter(Section section) {
    CloseTopic();
    at_ = nullptr;
    processes_ = nullptr;
    section_ = section;
  }

  // The last number of the row below "(total) ... (total)" is that of GPUs.
  void SummaryLine(std::string_view text) {
    const std::vector<std::string_view> words = WordsOf(text);
    if (words.empty()) return;
    if (totals_next_) answer_.gpus = NumberOf(words.back());
    totals_next_ = words.back() == "(total)";
  }

  // Group, communicators in it, nodes, ranks per node, ranks per communicator, ranks in the group, status, errors.
  void TableLine(std::string_view text) {
    const std::vector<std::string_view> words = WordsOf(text);
    if (words.size() != 8 || NumberOf(words[0]) == kNotKnown) return;
    const std::int64_t size = NumberOf(words[4]);
    if (size > 0 && size <= kMostRanks) sizes_[std::string(words[0])] = static_cast<std::int32_t>(size);
  }

  // "#0-0 (27a079b828ff1a75) MISMATCH".
  void Header(std::string_view text) {
    CloseTopic();
    processes_ = nullptr;
    at_ = nullptr;
    const std::size_t dash = text.find('-'), open = text.find(" ("), close = text.find(')');
    if (dash == std::string_view::npos || open == std::string_view::npos || close == std::string_view::npos ||
        dash > open || open > close)
      return;
    const auto size = sizes_.find(std::string(text.substr(1, dash - 1)));
    if (size == sizes_.end()) return;
    const std::string hash = PlainHash(std::string(text.substr(open + 2, close - open - 2)));
    const auto same = std::find_if(found_.begin(), found_.end(),
                                   [&](const Found& each) { return each.hash == hash && each.size == size->second; });
    if (same != found_.end()) {
      at_ = &*same;
    } else if ((members_left_ -= size->second) >= 0) {
      found_.push_back({.hash = hash, .size = size->second});
      at_ = &found_.back();
    }
  }

  void Finding(std::string_view text) {
    if (text.starts_with('#')) return Header(text);
    if (text == "DEAD" || text == "INCOMPLETE") {
      processes_ = text == "DEAD" ? &answer_.dead : &answer_.silent;
      at_ = nullptr;
      return;
    }
    if (processes_ != nullptr) {
      if (const std::optional<Process> process = ProcessOf(text)) processes_->push_back(*process);
      std::string_view rest = text;
      const std::int64_t count = TakeNumber(rest);
      if (processes_ == &answer_.dead && count != kNotKnown && rest.find("considered dead") != std::string_view::npos)
        answer_.dead_count = count;
      return;
    }
    if (at_ != nullptr) OfCommunicator(text);
  }

  void OfCommunicator(std::string_view text) {
    std::string_view rest = text;
    if (Take(rest, "Missing communicator data from ")) {
      Open(Topic::kSilent, "");
      at_->silent = TakeNumber(rest);
    } else if (Take(rest, "The missing rank")) {
      Take(rest, "s");
      Take(rest, ": ");
      for (std::int32_t rank = TakeRank(rest); rank >= 0; rank = TakeRank(rest)) {
        if (rank < at_->size) Rank(rank).silent = true;
        Take(rest, ",");
        Take(rest, " ");
      }
    } else if (rest.starts_with("Initialization error") || rest.starts_with("Asynchronous error")) {
      Open(Topic::kErrors, "");
    } else if (Take(rest, "Communicator ranks have different ")) {
      if (rest == "status") return Open(Topic::kStatus, "");
      const std::size_t end = rest.find(" operation counts");
      if (end == std::string_view::npos) return CloseTopic();
      const std::string kind(rest.substr(0, end));
      Open(Topic::kCounts, kind == "collective" ? "" : KindOf(kind));
    } else if (Take(rest, "Rank ")) {
      OfRank(rest);
    } else if (const std::int64_t count = TakeNumber(rest); count != kNotKnown && Take(rest, "ranks ")) {
      AddAlike(count, rest);
    }
  }

  // "7 -- GPU ..", "7 has launched up to operation 60 -- GPU ..".
  void OfRank(std::string_view rest) {
    const std::int32_t rank = TakeRank(rest);
    if (rank < 0 || rank >= at_->size) return;
    const std::size_t dashes = rest.find("-- ");
    if (dashes == std::string_view::npos) return;
    const Process process = GpuOf(rest.substr(dashes + 3));
    CommRank& facts = Rank(rank);
    if (process.known()) facts.process = process;
    if (topic_ == Topic::kSilent) {
      facts.silent = true;
      return;
    }
    std::string_view what = Trimmed(rest.substr(0, dashes));
    if (!what.empty()) {
      Take(what, "has ");
      AddAlike(1, what);
    }
    if (!alike_.empty()) alike_.back().named.push_back(rank);
  }

  // "have launched up to operation 64", "have not launched any operations", "have status INIT", "reported System
  // error".
  void AddAlike(std::int64_t count, std::string_view what) {
    Take(what, "have ");
    Alike alike{.count = count};
    if (Take(what, "launched up to operation ")) {
      alike.value = std::min(TakeNumber(what), std::int64_t{1} << 48);
      if (alike.value < 0) return;
    } else if (Take(what, "status ")) {
      alike.status = StatusOf(what);
    } else if (Take(what, "reported ")) {
      alike.error = what;
      if (alike.error.empty()) return;
      alike.error[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(alike.error[0])));
    } else if (what != "not launched any operations") {
      return;
    }
    alike_.push_back(std::move(alike));
  }

  void Open(Topic topic, std::string kind) {
    CloseTopic();
    topic_ = topic;
    kind_ = std::move(kind);
  }

  void CloseTopic() {
    if (at_ != nullptr && topic_ == Topic::kCounts && !alike_.empty())
      at_->counts.emplace_back(kind_, std::move(alike_));
    if (at_ != nullptr && topic_ == Topic::kStatus) at_->status = std::move(alike_);
    if (at_ != nullptr && topic_ == Topic::kErrors)
      for (const Alike& alike : alike_)
        for (const std::int32_t rank : alike.named) Rank(rank).error = alike.error;
    alike_.clear();
    topic_ = Topic::kNone;
  }

  CommRank& Rank(std::int32_t rank) {
    const auto [at, fresh] = at_->ranks.try_emplace(rank);
    if (fresh) at->second.rank = rank;
    return at->second;
  }

  // Who is not named is in the one class whose ranks are not, if their number says so.
  template <typename Set>
  static void Spread(std::vector<CommRank>& ranks, const std::vector<Alike>& classes, std::int64_t others, Set&& set) {
    std::set<std::int32_t> named;
    const Alike* rest = nullptr;
    std::size_t unnamed = 0;
    for (const Alike& alike : classes) {
      if (static_cast<std::int64_t>(alike.named.size()) != alike.count) {
        ++unnamed;
        rest = &alike;
        continue;
      }
      for (const std::int32_t rank : alike.named) {
        named.insert(rank);
        set(ranks[static_cast<std::size_t>(rank)], alike);
      }
    }
    if (unnamed != 1 || rest->count != others - static_cast<std::int64_t>(named.size())) return;
    for (CommRank& rank : ranks)
      if (!named.contains(rank.rank) && !rank.silent && rank.status != Status::kNoMember) set(rank, *rest);
  }

  static Communicator Whole(Found& found) {
    Communicator communicator{.hash = found.hash, .size = found.size};
    std::vector<CommRank>& ranks = communicator.ranks;
    ranks.resize(static_cast<std::size_t>(found.size));
    std::int64_t silent = 0, gone = 0;
    for (auto& [number, rank] : found.ranks) {
      silent += rank.silent;
      ranks[static_cast<std::size_t>(number)] = std::move(rank);
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].rank = static_cast<std::int32_t>(i);
    // Where silent ranks are not named, nothing follows from the number of the others.
    const bool all_named = silent >= found.silent;
    if (all_named)
      Spread(ranks, found.status, found.size - silent,
             [](CommRank& rank, const Alike& alike) { rank.status = alike.status; });
    for (const CommRank& rank : ranks) gone += rank.status == Status::kNoMember;
    for (const auto& [kind, classes] : found.counts)
      Spread(ranks, classes, all_named ? found.size - silent - gone : -1,
             [&name = kind](CommRank& rank, const Alike& alike) { rank.counts[name] = alike.value; });
    return communicator;
  }

  std::string_view text_;
  Answer answer_;
  Section section_ = Section::kNone;
  bool totals_next_ = false, warnings_begun_ = false;
  std::map<std::string, std::int32_t> sizes_;  // Of a group's communicators, by its number.
  std::vector<Found> found_;
  std::int64_t& members_left_;
  Found* at_ = nullptr;
  std::vector<Process>* processes_ = nullptr;
  Topic topic_ = Topic::kNone;
  std::string kind_;
  std::vector<Alike> alike_;
};

}  // namespace

Result<std::vector<Answer>> ReadTextAnswers(std::string_view text) {
  constexpr std::string_view kBegin = "Job summary";
  std::vector<Answer> answers;
  std::int64_t members_left = kMostRanks;
  for (std::size_t at = text.find(kBegin); at != std::string_view::npos;) {
    const std::size_t next = text.find(kBegin, at + kBegin.size());
    answers.push_back(Reader(text.substr(at, next == std::string_view::npos ? next : next - at), members_left).Read());
    at = next;
  }
  if (answers.empty())
    return Error{ErrorCode::kMalformed, "this is no answer of NCCL's RAS", "", "name what ncclras printed"};
  return answers;
}

}  // namespace lockstep::ras
