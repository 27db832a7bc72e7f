#include "ingest/flight_recorder/dump.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "core/printed.h"
#include "ingest/flight_recorder/document.h"
#include "ingest/flight_recorder/json_text.h"
#include "ingest/flight_recorder/pickle.h"

namespace lockstep::flight_recorder {
namespace {

using hang::kNotKnown;
using hang::OperationState;

constexpr std::int32_t kMostRanks = 1'000'000;

// PyTorch's names of element types.
std::int64_t ElementBytesOf(std::string_view type) {
  struct Size {
    std::string_view name;
    std::int64_t bytes;
  };
  for (const Size& size :
       {Size{"Float", 4}, Size{"BFloat16", 2}, Size{"Half", 2}, Size{"Double", 8}, Size{"Long", 8}, Size{"Int", 4},
        Size{"Short", 2}, Size{"Char", 1}, Size{"Byte", 1}, Size{"Bool", 1}, Size{"ComplexFloat", 8},
        Size{"ComplexDouble", 16}, Size{"ComplexHalf", 4}, Size{"UInt16", 2}, Size{"UInt32", 4}, Size{"UInt64", 8}})
    if (type == size.name) return size.bytes;
  return type.starts_with("Float8") ? 1 : kNotKnown;
}

// "[0, 4]", in this order; empty if the text is anything else.
std::vector<std::int32_t> RanksIn(std::string_view text) {
  std::vector<std::int32_t> ranks;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return {};
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    while (!text.empty() && (text.front() == ' ' || text.front() == ',')) text.remove_prefix(1);
    if (text.empty()) break;
    std::int32_t rank = -1;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || rank < 0 || rank >= kMostRanks) return {};
    ranks.push_back(rank);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  }
  std::set<std::int32_t> distinct(ranks.begin(), ranks.end());
  return distinct.size() == ranks.size() ? ranks : std::vector<std::int32_t>();
}

std::int64_t NumberOf(std::string_view text) {
  std::int64_t number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() && number >= 0 ? number : -1;
}

// "send 0->1", "recv 0<-8": who sends, who receives. The first number is the rank's own.
void SetEnds(std::string_view name, Entry& entry) {
  const std::size_t arrow = name.find("->") != std::string_view::npos ? name.find("->") : name.find("<-");
  const std::size_t space = name.find(' ');
  if (arrow == std::string_view::npos || space == std::string_view::npos || space > arrow) return;
  const std::int64_t own = NumberOf(name.substr(space + 1, arrow - space - 1)),
                     other = NumberOf(name.substr(arrow + 2));
  if (own < 0 || other < 0 || own >= kMostRanks || other >= kMostRanks) return;
  const bool sends = name[arrow] == '-';
  entry.from = static_cast<std::int32_t>(sends ? own : other);
  entry.to = static_cast<std::int32_t>(sends ? other : own);
}

bool IsOfTorch(std::string_view file) {
  for (const std::string_view part : {"-packages/torch/", "/torch/distributed/", "/torch/nn/", "/torch/autograd/"})
    if (file.find(part) != std::string_view::npos) return true;
  return false;
}

class Reader {
 public:
  // A value may be used many times over; a dump does so with small ones.
  explicit Reader(const Document& document) : document_(document), left_(64 * document.size() + 1'000'000) {}

  Result<Dump> Read(ValueId root) {
    if (!document_.IsDict(root)) return NoDump("");
    const ValueId entries = document_.At(root, "entries"), config = document_.At(root, "pg_config"),
                  status = document_.At(root, "pg_status");
    if (!document_.IsList(entries) && !document_.IsDict(config) && !document_.IsDict(status))
      return NoDump(OwnWords(root));
    dump_.version = std::string(document_.Text(document_.At(root, "version")));
    const std::int64_t rank = document_.Integer(document_.At(root, "rank"), -1);
    dump_.told_rank = rank >= 0 && rank < kMostRanks ? static_cast<std::int32_t>(rank) : -1;
    ReadConfig(config);
    for (const ValueId entry : document_.Items(entries)) {
      if (!Spend(1)) break;
      ReadEntry(entry);
    }
    ReadStatus(status);
    if (left_ == 0)
      return Error{ErrorCode::kMalformed, "the dump refers to the same values more often than any of PyTorch's", "",
                   "take a dump that PyTorch wrote"};
    std::stable_sort(dump_.entries.begin(), dump_.entries.end(),
                     [](const Entry& a, const Entry& b) { return a.record < b.record; });
    dump_.anything = !dump_.entries.empty() || any_status_;
    return std::move(dump_);
  }

 private:
  // What somebody wrote instead of a dump: {"ok": false, "reason": "..."}.
  std::string OwnWords(ValueId root) const {
    constexpr std::size_t kMost = 200;
    for (const std::string_view key : {"reason", "error", "message"})
      if (const std::string_view text = document_.Text(document_.At(root, key)); !text.empty())
        return "it says: " + Printed(BeginOf(text, kMost));
    return "";
  }

  static Error NoDump(std::string says) {
    return {
        ErrorCode::kMalformed,
        "this is neither a Flight Recorder dump (entries, process groups) nor an answer of NCCL's RAS", std::move(says),
        "name files that PyTorch's Flight Recorder wrote, or that ncclras printed: docs/hang.md says how to get them"};
  }

  bool Spend(std::size_t steps) {
    left_ -= std::min(left_, steps);
    return left_ > 0;
  }

  std::size_t GroupNamed(const std::string& name) {
    const auto [at, fresh] = by_name_.try_emplace(name, dump_.groups.size());
    if (fresh) dump_.groups.push_back({.name = name});
    return at->second;
  }

  void ReadConfig(ValueId config) {
    const std::vector<ValueId>& items = document_.Items(config);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string_view name = document_.Text(items[i]),
                             ranks = document_.Text(document_.At(items[i + 1], "ranks"));
      if (!Spend(1 + document_.Items(items[i + 1]).size() + ranks.size())) return;
      // PyTorch 2.15 on gloo has one group here, without a name: whichever was made last.
      if (name.empty()) continue;
      DumpGroup& group = dump_.groups[GroupNamed(std::string(name))];
      group.ranks = RanksIn(ranks);
      SetLabel(group, document_.Text(document_.At(items[i + 1], "desc")));
    }
  }

  static void SetLabel(DumpGroup& group, std::string_view label) {
    if (group.label.empty() && label != "undefined") group.label = std::string(label);
  }

  // Frames are given from the inside; the first one that is not PyTorch's is the program's.
  std::string SiteOf(ValueId frames) {
    for (const ValueId frame : document_.Items(frames)) {
      if (!Spend(8)) return "";
      if (document_.Items(frame).size() > 64) continue;
      const std::string_view file = document_.Text(document_.At(frame, "filename"));
      if (file.empty() || file.starts_with("<") || IsOfTorch(file)) continue;
      std::string site(file.substr(file.rfind('/') + 1));
      site += ":" + std::to_string(document_.Integer(document_.At(frame, "line"), 0));
      const std::string_view function = document_.Text(document_.At(frame, "name"));
      return function.empty() ? site : site + " " + std::string(function);
    }
    return "";
  }

  // The number of elements of all tensors together.
  std::int64_t ElementsOf(ValueId sizes) {
    if (!document_.IsList(sizes)) return kNotKnown;
    std::int64_t all = 0;
    for (const ValueId tensor : document_.Items(sizes)) {
      std::int64_t elements = 1;
      if (!document_.IsList(tensor) || !Spend(1 + document_.Items(tensor).size())) return kNotKnown;
      for (const ValueId extent : document_.Items(tensor)) {
        const std::int64_t n = document_.Integer(extent, -1);
        if (n < 0 || __builtin_mul_overflow(elements, n, &elements)) return kNotKnown;
      }
      if (__builtin_add_overflow(all, elements, &all)) return kNotKnown;
    }
    return all;
  }

  std::string TypeOf(ValueId types) const {
    const std::vector<ValueId>& items = document_.Items(types);
    return items.empty() ? std::string() : std::string(document_.Text(items[0]));
  }

  void Happened(std::int64_t time_ns) { dump_.latest_ns = std::max(dump_.latest_ns, time_ns); }

  void ReadEntry(ValueId id) {
    const std::vector<ValueId>& items = document_.Items(id);
    if (!document_.IsDict(id) || !Spend(items.size())) return;
    Entry entry;
    std::int64_t pg_id = -1, started_ns = 0, completed_ns = 0;
    std::string name, label;
    std::string_view profiling_name, state;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string_view key = document_.Text(items[i]);
      const ValueId value = items[i + 1];
      const auto number = [&](std::int64_t otherwise) { return document_.Integer(value, otherwise); };
      if (key == "frames") {
        entry.call.site = SiteOf(value);
      } else if (key == "record_id") {
        entry.record = number(kNotKnown);
      } else if (key == "pg_id") {
        pg_id = number(-1);
      } else if (key == "process_group") {
        const std::vector<ValueId>& parts = document_.Items(value);
        if (!parts.empty()) name = std::string(document_.Text(parts[0]));
        if (parts.size() > 1) label = std::string(document_.Text(parts[1]));
      } else if (key == "collective_seq_id") {
        entry.collective = number(kNotKnown);
      } else if (key == "p2p_seq_id") {
        entry.message = number(kNotKnown);
      } else if (key == "op_id") {
        entry.operation = number(kNotKnown);
      } else if (key == "profiling_name") {
        profiling_name = document_.Text(value);
      } else if (key == "time_created_ns") {
        entry.call.created_ns = std::max<std::int64_t>(number(0), 0);
      } else if (key == "input_sizes") {
        entry.call.elements_in = ElementsOf(value);
      } else if (key == "output_sizes") {
        entry.call.elements_out = ElementsOf(value);
      } else if (key == "input_dtypes" || key == "output_dtypes") {
        if (entry.call.type.empty()) entry.call.type = TypeOf(value);
      } else if (key == "state") {
        state = document_.Text(value);
      } else if (key == "time_discovered_started_ns") {
        started_ns = number(0);
      } else if (key == "time_discovered_completed_ns") {
        completed_ns = number(0);
      } else if (key == "retired") {
        entry.retired = document_.Bool(value, false);
      } else if (key == "timeout_ms") {
        if (__builtin_mul_overflow(number(0), std::int64_t{1'000'000}, &entry.timeout_ns)) entry.timeout_ns = 0;
      } else if (key == "is_p2p") {
        entry.is_message = document_.Bool(value, false);
      }
    }
    if (profiling_name.empty()) return;
    Finish(entry, profiling_name, state, started_ns, completed_ns);
    const std::size_t group = GroupNamed(name);
    entry.group = static_cast<std::int64_t>(group);
    SetLabel(dump_.groups[group], label);
    if (pg_id >= 0) name_of_id_[pg_id] = name;
    dump_.entries.push_back(std::move(entry));
  }

  void Finish(Entry& entry, std::string_view profiling_name, std::string_view state, std::int64_t started_ns,
              std::int64_t completed_ns) {
    entry.call.kind = KindOf(profiling_name, &entry.backend);
    // Gloo marks an operation that has ended as retired and leaves its state (PyTorch 2.15). NCCL retires what has
    // timed out as well.
    const bool done = state == "completed" || completed_ns > 0 || (entry.backend == "gloo" && entry.retired);
    entry.call.state = done                                   ? OperationState::kCompleted
                       : state == "started" || started_ns > 0 ? OperationState::kStarted
                                                              : OperationState::kScheduled;
    entry.shows_start = state == "started" || started_ns > 0;
    if (entry.call.created_ns == 0) entry.call.created_ns = kNotKnown;
    for (const std::int64_t time : {entry.call.created_ns, started_ns, completed_ns}) Happened(time);
    const std::int64_t bytes = ElementBytesOf(entry.call.type);
    const std::int64_t elements = std::max(entry.call.elements_in, entry.call.elements_out);
    if (bytes == kNotKnown || elements == kNotKnown || __builtin_mul_overflow(elements, bytes, &entry.call.bytes))
      entry.call.bytes = kNotKnown;
    if (entry.call.kind == "send" || entry.call.kind == "recv") {
      entry.is_message = true;
      SetEnds(profiling_name, entry);
    }
  }

  // Statuses are numbered as this rank made its groups, and only entries say which name has which number. Without an
  // entry, the order tells it: groups that were made later have higher numbers and, where names are numbers, higher
  // names.
  void NameByOrder(const std::set<std::int64_t>& ids) {
    std::vector<std::int64_t> names;
    for (const DumpGroup& group : dump_.groups) names.push_back(NumberOf(group.name));
    std::sort(names.begin(), names.end());
    if (names.size() != ids.size() || (!names.empty() && names.front() < 0)) return;
    std::map<std::int64_t, std::string> ordered;
    std::size_t next = 0;
    for (const std::int64_t id : ids) ordered[id] = std::to_string(names[next++]);
    for (const auto& [id, name] : name_of_id_)
      if (const auto at = ordered.find(id); at == ordered.end() || at->second != name) return;
    name_of_id_ = std::move(ordered);
  }

  void ReadStatus(ValueId status) {
    const std::vector<ValueId>& items = document_.Items(status);
    std::set<std::int64_t> ids;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!Spend(1 + document_.Items(items[i + 1]).size())) return;
      ids.insert(document_.Integer(items[i], -1));
    }
    any_status_ = !ids.empty();
    NameByOrder(ids);
    if (ids.contains(0) && !name_of_id_.contains(0) && by_name_.contains("0")) name_of_id_[0] = "0";
    dump_.status_is_whole = any_status_;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto name = name_of_id_.find(document_.Integer(items[i], -1));
      const auto group = name == name_of_id_.end() ? by_name_.end() : by_name_.find(name->second);
      if (group == by_name_.end()) {
        dump_.status_is_whole = false;
        continue;
      }
      DumpGroup& of = dump_.groups[group->second];
      const auto number = [&](std::string_view key) {
        return document_.Integer(document_.At(items[i + 1], key), kNotKnown);
      };
      of.enqueued = number("last_enqueued_collective");
      of.started = number("last_started_collective");
      of.completed = number("last_completed_collective");
      of.has_status = of.enqueued != kNotKnown;
    }
  }

  const Document& document_;
  std::size_t left_;
  Dump dump_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::int64_t, std::string> name_of_id_;
  bool any_status_ = false;
};

}  // namespace

std::string KindOf(std::string_view profiling_name, std::string* backend) {
  std::string_view name = profiling_name;
  if (const std::size_t colon = name.find(':'); colon != std::string_view::npos) {
    if (backend != nullptr) *backend = std::string(name.substr(0, colon));
    name.remove_prefix(colon + 1);
  }
  name = name.substr(0, name.find(' '));
  while (name.starts_with('_')) name.remove_prefix(1);
  std::string kind(name);
  for (char& c : kind) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const std::string_view end : {"_base", "_oop", "_single"})
    if (kind.ends_with(end)) kind.resize(kind.size() - end.size());
  // Backends and versions name one operation differently.
  struct Name {
    std::string_view from, to;
  };
  for (const Name& name_of :
       {Name{"allreduce", "all_reduce"}, Name{"allgather", "all_gather"}, Name{"alltoall", "all_to_all"},
        Name{"all_to_all_v", "all_to_all"}, Name{"all_reduce_barrier", "barrier"}})
    if (kind == name_of.from) kind = std::string(name_of.to);
  return kind;
}

Result<Dump> ReadDump(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && bytes[first] == '{' && !BeginsLikePickle(bytes);
  LS_TRY(const Parsed parsed, json ? ReadJson(bytes) : ReadPickle(bytes));
  return Reader(parsed.document).Read(parsed.root);
}

}  // namespace lockstep::flight_recorder
