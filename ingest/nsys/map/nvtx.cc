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

class NvtxMapper {
 public:
  NvtxMapper(Context& context, MpiCalls& mpi)
      : context_(context), t_(context.tables()), mpi_(mpi), mpi_of_tables_(mpi.any()) {}

  void Run() {
    Domains();
    Events();
    for (ingest::CommEvent& event : context_.trace().comm_events)
      if (const auto at = members_.find(event.args.communicator); at != members_.end())
        event.args.group_size = at->second;
    trace::SortRows(t_.ranges, t_.ranges.begin_ns);
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

  Context& context_;
  schema::RankTables& t_;
  MpiCalls& mpi_;
  const bool mpi_of_tables_;
  std::map<std::int64_t, std::string> domains_;
  std::map<std::uint64_t, std::int64_t> members_;  // Of NCCL's communicators.
};

}  // namespace

void MapNvtx(Context& context, MpiCalls& mpi) { NvtxMapper(context, mpi).Run(); }

}  // namespace lockstep::nsys
