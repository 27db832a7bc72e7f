#include "ingest/nsys/map/nvtx.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/operation_name.h"
#include "ingest/map/names.h"
#include "trace/decode/sort_rows.h"
#include "trace/file/strings.h"

namespace lockstep::nsys {
namespace {

using schema::kNone;

// The only number in a name: "step 12", "iteration=12"; -1: none, or several ("step 3/100" gives its first).
std::int64_t NumberIn(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  if (begin == std::string_view::npos) return -1;
  std::int64_t number = -1;
  const auto [at, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  return error == std::errc() ? number : -1;
}

class NvtxMapper {
 public:
  NvtxMapper(Context& context, MpiCalls& mpi, const std::string& step_range)
      : context_(context), t_(context.tables()), mpi_(mpi), step_range_(step_range), mpi_of_tables_(mpi.any()) {}

  NvtxFacts Run() {
    Domains();
    Events();
    for (ingest::CommEvent& event : context_.trace().comm_events)
      if (const auto at = members_.find(event.args.communicator); at != members_.end())
        event.args.group_size = at->second;
    Steps();
    // Steps refer to no row, so ranges may be reordered.
    trace::SortRows(t_.ranges, t_.ranges.begin_ns);
    return std::move(facts_);
  }

 private:
  std::string_view NameOf(const Rows& row, int text, int text_id) const {
    const std::string_view own = row.Text(text);
    return own.empty() && row.Int(text_id) != kAbsent ? context_.report().Text(row.Int(text_id)) : own;
  }

  void Domains() {
    context_.ForRows("NVTX_EVENTS", {"globalTid", "eventType", "text", "textId", "domainId", "category", "start"},
                     [&](const Rows& row) {
                       if (row.Int(1) == kNvtxDomain) domains_[row.Int(4)] = std::string(NameOf(row, 2, 3));
                     });
  }

  std::uint32_t DomainText(std::int64_t domain) {
    const auto at = domains_.find(domain);
    return at == domains_.end() ? kNone : context_.Intern(at->second);
  }

  void Events() {
    context_.ForRows(
        "NVTX_EVENTS",
        {"globalTid", "eventType", "start", "end", "text", "textId", "domainId", "category", "int64Value",
         "uint64Value", "int32Value", "uint32Value", "doubleValue", "floatValue", "jsonText", "jsonTextId"},
        [&](const Rows& row) {
          const std::int64_t type = row.Int(1);
          const std::uint32_t domain = DomainText(row.Int(6));
          if (type == kNvtxCategory) {
            const std::uint32_t name = context_.Intern(NameOf(row, 4, 5));
            if (row.Int(7) >= 0 && name != kNone)
              t_.range_categories.Append({.domain = domain, .category_id = Id32(row.Int(7), 0), .name = name});
            return;
          }
          if (type != kNvtxMark && type != kNvtxPushPop && type != kNvtxStartEnd) return;
          Span span;
          if (!context_.Times(row.Int(2), type == kNvtxMark ? row.Int(2) : row.Int(3), true, span)) return;
          const std::string_view name = NameOf(row, 4, 5);
          const std::uint32_t thread = context_.Thread(row.Int(0), span);
          const std::string_view domain_name = lockstep::trace::TextOf(t_, domain);
          if (domain_name == "MPI" && name.starts_with("MPI_") && type == kNvtxPushPop) {
            if (mpi_of_tables_) return;
            MpiEvent event;
            event.span = span, event.thread = thread, event.name = context_.Intern(name);
            mpi_.Add(event);
            return;
          }
          Range(row, type, span, thread, name, domain);
          if (domain_name == "NCCL" && type == kNvtxPushPop && name.starts_with("nccl")) Nccl(row, span, thread, name);
        });
  }

  void Range(const Rows& row, std::int64_t type, const Span& span, std::uint32_t thread, std::string_view text,
             std::uint32_t domain) {
    // PyTorch has no domain of its own.
    const bool may_be_torch = row.Int(6) <= 0 && type == kNvtxPushPop;
    const ingest::EmittedRange torch = may_be_torch ? ingest::EmittedRangeOf(text) : ingest::EmittedRange{.name = text};
    const std::string_view name = torch.name;
    const bool is_operator = may_be_torch && torch.is_operator();
    std::int64_t payload = 0;
    std::uint8_t payload_kind = 0;
    for (int column = 8; column <= 11 && payload_kind == 0; ++column)
      if (row.Int(column) != kAbsent) payload = row.Int(column), payload_kind = 1;
    for (int column = 12; column <= 13 && payload_kind == 0; ++column)
      if (const double value = row.Real(column); !std::isnan(value))
        payload = std::bit_cast<std::int64_t>(value), payload_kind = 2;
    if (torch.sequence >= 0) payload = torch.sequence, payload_kind = schema::PayloadKind::kSequence;
    t_.ranges.Append({.begin_ns = span.begin_ns,
                      .duration_ns = span.duration_ns,
                      .thread = thread,
                      .name = context_.Intern(name),
                      .domain = is_operator ? context_.Intern(torch.sizes) : domain,
                      .source = is_operator     ? schema::RangeSource::kCpuOp
                                : torch.emitted ? schema::RangeSource::kTorch
                                                : schema::RangeSource::kNvtx,
                      .kind = static_cast<std::uint8_t>(type == kNvtxPushPop    ? 0
                                                        : type == kNvtxStartEnd ? 1
                                                                                : 2),
                      .category = ingest::RangeCategory(name),
                      .depth = 0,
                      .open = span.open,
                      .payload = payload,
                      .payload_kind = payload_kind,
                      .category_id = Id32(row.Int(7), 0)});
    if (type != kNvtxMark && !is_operator) Candidate(span, thread, name, domain);
  }

  // "ncclAllReduce" with what NCCL's payload says (src/collectives.cc, NCCL 2.17 and later; names of the fields have
  // changed between versions, so they are distinguished by their words).
  void Nccl(const Rows& row, const Span& span, std::uint32_t thread, std::string_view name) {
    const std::string lower = "nccl:" + Letters(name.substr(4));
    std::string_view json = row.Text(14);
    if (json.empty() && row.Int(15) != kAbsent) json = context_.report().Text(row.Int(15));
    if (json.size() >= 65536) json = {};
    ingest::CommEvent event;
    if (KindOfOperation(lower) == CollectiveKind::kNone && DirectionOfOperation(lower) < 0) {
      // "ncclCommInitRank": how many members there are.
      Payload(json, CollectiveKind::kNone, event.args);
      if (event.args.communicator != 0 && event.args.group_size > 0)
        members_[event.args.communicator] = event.args.group_size;
      return;
    }
    ++facts_.nccl_ops;
    event.kind = ingest::CommEvent::kAnnotation;
    event.thread = thread;
    event.name = context_.Intern(lower);
    event.begin_ns = span.begin_ns;
    event.end_ns = span.begin_ns + span.duration_ns;
    Payload(json, KindOfOperation(lower), event.args);
    context_.trace().comm_events.push_back(event);
  }

  void Payload(std::string_view json, CollectiveKind kind, ingest::CommArgs& args) {
    if (json.empty()) return;
    const auto object = nlohmann::json::parse(json, nullptr, false);
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.items()) {
      const std::string word = Letters(key);
      std::uint64_t number = 0;
      if (value.is_number_unsigned()) {
        number = value.get<std::uint64_t>();
      } else if (value.is_number_integer()) {
        number = static_cast<std::uint64_t>(value.get<std::int64_t>());
      } else if (value.is_string()) {
        const std::string& text = value.get_ref<const std::string&>();
        const bool hex = text.starts_with("0x");
        const char* end = text.data() + text.size();
        if (std::from_chars(text.data() + (hex ? 2 : 0), end, number, hex ? 16 : 10).ptr != end || text.empty())
          continue;
      } else {
        continue;
      }
      const std::int64_t small = number <= INT32_MAX ? static_cast<std::int64_t>(number) : -1;
      if (word.find("communicator") != std::string::npos || word == "commid" || word == "comm") {
        args.communicator = number;
      } else if (word == "noofranks" || word == "nranks") {
        args.group_size = small;
      } else if (word.find("size") != std::string::npos || word.find("bytes") != std::string::npos) {
        if (number > static_cast<std::uint64_t>(INT64_MAX)) continue;
        args.dtype = context_.Intern("bytes");
        // Of one member's message: what reduce-scatter receives, what the others send.
        (kind == CollectiveKind::kReduceScatter ? args.out_elements : args.in_elements) =
            static_cast<std::int64_t>(number);
      } else if (word.find("root") != std::string::npos || word.find("peer") != std::string::npos) {
        args.rank = small;
      }
    }
  }

  struct Mark {
    Span span;
    std::uint32_t thread;
    std::int64_t number;
  };

  // Notes ranges that may be steps, by their name and thread.
  void Candidate(const Span& span, std::uint32_t thread, std::string_view name, std::uint32_t domain) {
    std::size_t order = 0;
    std::string word;
    if (!step_range_.empty()) {
      if (!name.starts_with(step_range_)) return;
      const std::string_view rest = name.substr(step_range_.size());
      if (!rest.empty() && NumberIn(rest) < 0) return;
      if (!rest.empty() && !Letters(rest).empty()) return;
      word = step_range_;
    } else {
      const int step_word = ingest::StepWord(name);
      if (step_word < 0) return;
      word = Letters(name);
      order = static_cast<std::size_t>(step_word);
    }
    auto& list = candidates_[{order, domain, word, thread}];
    list.push_back({span, thread, NumberIn(step_range_.empty() ? name : name.substr(step_range_.size()))});
    if (list.size() == 1) first_name_[{order, domain, word, thread}] = std::string(name);
  }

  void Steps() {
    if (candidates_.empty()) return;
    // Chooses the most reliable word, and of the threads that use it the one that does so most.
    auto best = candidates_.begin();
    for (auto at = candidates_.begin(); at != candidates_.end(); ++at) {
      if (std::get<0>(at->first) != std::get<0>(best->first)) break;
      if (at->second.size() > best->second.size()) best = at;
    }
    std::vector<Mark>& marks = best->second;
    std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
      return std::tuple(a.span.begin_ns, -a.span.duration_ns) < std::tuple(b.span.begin_ns, -b.span.duration_ns);
    });
    // Numbers are used if each range has one and they grow; else the order.
    bool numbered = true;
    std::int64_t before = -1;
    for (const Mark& mark : marks) {
      numbered = numbered && mark.number > before;
      before = mark.number;
    }
    std::int64_t ordinal = 0, end = schema::kNoTime;
    for (const Mark& mark : marks) {
      if (mark.span.begin_ns < end) continue;  // It is inside another step.
      end = mark.span.begin_ns + mark.span.duration_ns;
      const std::int64_t index = numbered ? mark.number : ordinal;
      ++ordinal;
      context_.trace().steps.push_back({index, mark.span.begin_ns, end, mark.thread});
      t_.steps.Append({.index = index,
                       .begin_ns = mark.span.begin_ns,
                       .end_ns = end,
                       .source = schema::RangeSource::kNvtx,
                       .complete = static_cast<std::uint8_t>(!mark.span.open),
                       .warmup = 0,
                       .thread = mark.thread,
                       .cpu_ns = -1});
    }
    facts_.step_name = first_name_[best->first];
  }

  Context& context_;
  schema::RankTables& t_;
  MpiCalls& mpi_;
  const std::string& step_range_;
  const bool mpi_of_tables_;
  std::map<std::int64_t, std::string> domains_;
  std::map<std::uint64_t, std::int64_t> members_;  // Of NCCL's communicators.
  using Key = std::tuple<std::size_t, std::uint32_t, std::string, std::uint32_t>;
  std::map<Key, std::vector<Mark>> candidates_;
  std::map<Key, std::string> first_name_;
  NvtxFacts facts_;
};

}  // namespace

NvtxFacts MapNvtx(Context& context, MpiCalls& mpi, const std::string& step_range) {
  return NvtxMapper(context, mpi, step_range).Run();
}

}  // namespace lockstep::nsys
