#include "export/common/rank_events.h"

#include <algorithm>
#include <queue>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "export/common/table_stream.h"
#include "merge/timeline/rank_activity.h"
#include "merge/timeline/rank_pass.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

// Damaged files contain any duration; times are clamped so that sums cannot overflow, see CutWildTimes.
Place Lasting(std::int64_t begin_ns, std::int64_t duration_ns) {
  if (begin_ns == kNoTime) return {kNoTime, kNoTime};
  std::int64_t end_ns = 0;
  if (duration_ns < 0 || __builtin_add_overflow(begin_ns, duration_ns, &end_ns)) end_ns = begin_ns;
  return {begin_ns, end_ns};
}

// An operation with a post, a completion, and perhaps never one.
Place Posted(std::int64_t begin_ns, std::int64_t post_end_ns, std::int64_t end_ns, bool blocking,
             std::int64_t last_ns) {
  if (begin_ns == kNoTime) return {kNoTime, kNoTime};
  if (end_ns != kNoTime) return {begin_ns, std::max(begin_ns, end_ns)};
  const std::int64_t known = post_end_ns == kNoTime ? begin_ns : std::max(begin_ns, post_end_ns);
  return {begin_ns, blocking ? std::max(known, last_ns) : known, 0, false};
}

// Calls f(kind, where) with the table's type for every table of events.
template <typename F>
void ForEachEventTable(std::int64_t last_ns, F&& f) {
  const auto lasting = [](const auto& row) { return Lasting(row.begin_ns, row.duration_ns); };
  const auto instant = [](const auto& row) { return Lasting(row.time_ns, 0); };
  f.template operator()<schema::Ranges>(EventKind::kRange, [](const schema::Ranges::Row& row) {
    Place place = Lasting(row.begin_ns, row.kind == schema::RangeKind::kMark ? 0 : row.duration_ns);
    place.depth = row.depth;
    place.ended = row.open == 0;
    return place;
  });
  f.template operator()<schema::MpiCalls>(EventKind::kMpiCall, [](const schema::MpiCalls::Row& row) {
    Place place = Lasting(row.begin_ns, row.duration_ns);
    place.ended = row.outcome != schema::CallOutcome::kNotReturned;
    return place;
  });
  f.template operator()<schema::MpiRequests>(EventKind::kMpiRequest, [last_ns](const schema::MpiRequests::Row& row) {
    return Posted(row.begin_ns, row.post_end_ns, row.end_ns, false, last_ns);
  });
  f.template operator()<schema::Collectives>(EventKind::kCollective, [last_ns](const schema::Collectives::Row& row) {
    return Posted(row.begin_ns, row.post_end_ns, row.end_ns, row.mode == schema::Code(CollectiveMode::kBlocking),
                  last_ns);
  });
  f.template operator()<schema::P2p>(EventKind::kMessage, [last_ns](const schema::P2p::Row& row) {
    return Posted(row.begin_ns, row.post_end_ns, row.end_ns, row.mode == schema::Code(CollectiveMode::kBlocking),
                  last_ns);
  });
  f.template operator()<schema::Api>(EventKind::kApi, lasting);
  f.template operator()<schema::Blocked>(EventKind::kBlocked, lasting);
  f.template operator()<schema::Kernels>(EventKind::kKernel, lasting);
  f.template operator()<schema::Copies>(EventKind::kCopy, lasting);
  f.template operator()<schema::Sync>(EventKind::kSync, lasting);
  f.template operator()<schema::Overheads>(EventKind::kOverhead, lasting);
  f.template operator()<schema::GpuMemory>(EventKind::kMemory, instant);
  f.template operator()<schema::GpuSamples>(EventKind::kSensors, instant);
}

// The columns of any table that Place needs.
template <typename Table>
constexpr schema::Columns<Table> TimeColumns() {
  auto columns = schema::Columns<Table>::None();
  if constexpr (requires { &Table::begin_ns; }) columns |= &Table::begin_ns;
  if constexpr (requires { &Table::duration_ns; }) columns |= &Table::duration_ns;
  if constexpr (requires { &Table::time_ns; }) columns |= &Table::time_ns;
  if constexpr (requires { &Table::post_end_ns; }) columns |= &Table::post_end_ns;
  if constexpr (requires { &Table::end_ns; }) columns |= &Table::end_ns;
  if constexpr (requires { &Table::mode; }) columns |= &Table::mode;
  if constexpr (requires { &Table::kind; }) columns |= &Table::kind;
  return columns;
}

// How many collectives are in flight on the rank, and their bytes, as counters.
class InFlight {
 public:
  template <typename F>
  Status Until(std::int64_t ns, F&& emit) {
    while (!ends_.empty() && ends_.top().first <= ns) {
      const auto [end_ns, bytes] = ends_.top();
      ends_.pop();
      bytes_ -= bytes;
      // One value per moment.
      if (ends_.empty() || ends_.top().first != end_ns) LS_CHECK(Emit(end_ns, emit));
    }
    return Ok();
  }
  template <typename F>
  Status Add(std::int64_t begin_ns, std::int64_t end_ns, std::uint64_t bytes, F&& emit) {
    if (end_ns <= begin_ns) return Ok();
    ends_.emplace(end_ns, static_cast<std::int64_t>(bytes));
    bytes_ += static_cast<std::int64_t>(bytes);
    return Emit(begin_ns, emit);
  }

 private:
  template <typename F>
  Status Emit(std::int64_t ns, F&& emit) {
    const Counter count{kInFlight, "count", static_cast<std::int64_t>(ends_.size())};
    const Counter sum{kBytesInFlight, "bytes", bytes_};
    for (const Counter* counter : {&count, &sum}) {
      Event event{EventKind::kCounter, ns, ns, counter};
      LS_CHECK(emit(event));
    }
    return Ok();
  }
  using End = std::pair<std::int64_t, std::int64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::int64_t bytes_ = 0;
};

}  // namespace

RankIndex::RankIndex(const merge::Timeline& timeline) {
  const auto& members = timeline.tables.collective_ranks.rank;
  for (std::uint32_t i = 0; i < members.size(); ++i) members_[members[i]].push_back(i);
  const auto& steps = timeline.tables.step_ranks.rank;
  for (std::uint32_t i = 0; i < steps.size(); ++i) steps_[steps[i]].push_back(i);
}

const std::vector<std::uint32_t>& RankIndex::Members(std::int32_t rank) const {
  const auto at = members_.find(rank);
  return at == members_.end() ? none_ : at->second;
}

const std::vector<std::uint32_t>& RankIndex::Steps(std::int32_t rank) const {
  const auto at = steps_.find(rank);
  return at == steps_.end() ? none_ : at->second;
}

Result<std::unique_ptr<RankEvents>> RankEvents::Open(const merge::Timeline& timeline, const RankIndex& index,
                                                     std::int32_t rank) {
  std::unique_ptr<RankEvents> events(new RankEvents(timeline, index, rank));
  LS_TRY(events->source_, merge::OpenRank(timeline, rank));
  events->head_ = events->source_->ReadHead().tables;
  events->reader_ = events->source_->OpenEvents();
  ExportRank& info = events->rank_;
  info.head = &events->head_;
  info.clock = &events->clock_;
  info.reader = events->reader_.get();
  info.training_thread = merge::TrainingThread(events->head_);
  info.gpu = timeline.tables.ranks.gpu[static_cast<std::size_t>(timeline.RankRow(rank))] != 0;
  info.title = events->Title();
  return events;
}

std::string RankEvents::Title() const {
  const auto row = static_cast<std::size_t>(timeline_.RankRow(rank_.rank));
  std::string title = "rank " + std::to_string(rank_.rank);
  if (const std::string_view node = timeline_.Text(timeline_.tables.ranks.node[row]); !node.empty())
    title.append(" \xc2\xb7 ").append(node);
  // The devices that it used; a trace may describe all devices of the node.
  ingest::RowCursor<schema::Kernels,
                    schema::Columns<schema::Kernels>(&schema::Kernels::begin_ns, &schema::Kernels::device)>
      kernels(*reader_);
  std::set<std::uint16_t> devices;
  if (const auto* piece = kernels.Next())
    for (const std::uint16_t device : piece->device)
      if (devices.size() < 16) devices.insert(device);
  bool first = true;
  for (const std::uint16_t device : devices) {
    title += first ? " \xc2\xb7 GPU " : ", ";
    title += std::to_string(device);
    first = false;
  }
  return title;
}

Extent RankEvents::Look(const Interval& window) {
  Extent extent;
  const std::int64_t last_ns = merge::CapturedSpan(head_).end;
  const auto add = [&](EventKind kind, const Place& place) {
    const std::int64_t begin = clock_.ToCluster(place.begin_ns), end = clock_.ToCluster(place.end_ns);
    if (end < window.begin || begin >= window.end) return;
    extent.first_ns = std::min(extent.first_ns, begin);
    extent.last_ns = std::max(extent.last_ns, end);
    if (IsDetail(kind)) ++extent.details[BinOf(static_cast<std::uint64_t>(end - begin))];
  };
  ForEachEventTable(last_ns, [&]<typename Table>(EventKind kind, auto where) {
    ingest::RowCursor<Table, TimeColumns<Table>()> cursor(*reader_);
    std::int64_t before = INT64_MIN, latest = INT64_MIN;  // Of the pieces before the last one; of all pieces.
    while (const auto* piece = cursor.Next()) {
      const std::int64_t settled = before;
      before = latest;
      const std::size_t rows = [&] {
        if constexpr (requires { piece->begin_ns; })
          return piece->begin_ns.size();
        else
          return piece->time_ns.size();
      }();
      typename Table::Row row{};
      for (std::size_t i = 0; i < rows; ++i) {
        if constexpr (requires { row.begin_ns; }) row.begin_ns = piece->begin_ns[i];
        if constexpr (requires { row.duration_ns; }) row.duration_ns = piece->duration_ns[i];
        if constexpr (requires { row.time_ns; }) row.time_ns = piece->time_ns[i];
        if constexpr (requires { row.post_end_ns; }) row.post_end_ns = piece->post_end_ns[i];
        if constexpr (requires { row.end_ns; }) row.end_ns = piece->end_ns[i];
        if constexpr (requires { row.mode; }) row.mode = piece->mode[i];
        if constexpr (requires { row.kind; }) row.kind = piece->kind[i];
        const Place place = where(row);
        if (place.begin_ns == kNoTime) continue;
        if (place.begin_ns < settled) extent.unordered[static_cast<std::size_t>(kind)] = true;
        latest = std::max(latest, place.begin_ns);
        add(kind, place);
      }
    }
  });
  for (const std::uint32_t row : index_.Steps(rank_.rank)) {
    const schema::TlStepRanks& steps = timeline_.tables.step_ranks;
    add(EventKind::kStep, Lasting(steps.begin_ns[row], steps.end_ns[row] - steps.begin_ns[row]));
  }
  // The host's steps may begin before the first event that is recorded in them.
  for (std::size_t row = 0; rank_.gpu && row < head_.steps.rows(); ++row)
    if (const std::int64_t begin = head_.steps.begin_ns[row]; begin != kNoTime)
      add(EventKind::kHostStep, Place{begin, std::max(begin, head_.steps.end_ns[row])});
  return extent;
}

std::vector<std::unique_ptr<Stream>> RankEvents::Streams(const Extent& extent) {
  std::vector<std::unique_ptr<Stream>> streams;
  const auto add_steps = [&]<typename Table>(const Table& table, EventKind kind, const auto& rows) {
    std::vector<typename RowsStream<typename Table::Row>::Item> items;
    for (const std::uint32_t row : rows) {
      const Place place{table.begin_ns[row], std::max(table.begin_ns[row], table.end_ns[row])};
      if (place.begin_ns != kNoTime) items.push_back({place, row, table.Get(row)});
    }
    streams.push_back(std::make_unique<RowsStream<typename Table::Row>>(std::move(items), kind));
  };
  add_steps(timeline_.tables.step_ranks, EventKind::kStep, index_.Steps(rank_.rank));
  if (rank_.gpu)
    add_steps(head_.steps, EventKind::kHostStep, std::views::iota(0u, static_cast<std::uint32_t>(head_.steps.rows())));
  ForEachEventTable(merge::CapturedSpan(head_).end, [&]<typename Table>(EventKind kind, auto where) {
    if (reader_->Rows(Table::kInfo.name) == 0) return;
    streams.push_back(std::make_unique<TableStream<Table, decltype(where)>>(
        *reader_, kind, extent.unordered[static_cast<std::size_t>(kind)], where));
  });
  return streams;
}

std::vector<std::uint32_t> RankEvents::MemberOfRows() const {
  std::vector<std::uint32_t> member_of;
  const schema::TlCollectiveRanks& members = timeline_.tables.collective_ranks;
  for (const std::uint32_t member : index_.Members(rank_.rank)) {
    const std::uint32_t row = members.row[member];
    if (row >= reader_->Rows(schema::Collectives::kInfo.name)) continue;
    if (row >= member_of.size()) member_of.resize(row + 1, kNone);
    member_of[row] = member;
  }
  return member_of;
}

void RankEvents::PutInstance(std::uint32_t member, const Selection& selection, Event& event) const {
  const std::uint32_t instance = timeline_.tables.collective_ranks.collective[member];
  event.instance = {instance, member};
  if (const auto at = selection.flows.find(member); at != selection.flows.end()) event.flow = at->second;
  event.flow_target = instance < selection.flow_target.size() && selection.flow_target[instance] &&
                      timeline_.tables.collectives.last_rank[instance] == rank_.rank;
}

Status RankEvents::Walk(const Selection& selection, const Extent& extent, const std::function<Status(const Event&)>& f,
                        Counts& left_out) {
  const std::vector<std::unique_ptr<Stream>> streams = Streams(extent);
  const std::vector<std::uint32_t> member_of = MemberOfRows();
  InFlight in_flight;
  std::vector<bool> there(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) there[i] = streams[i]->Ready();
  while (true) {
    std::size_t first = streams.size();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (!there[i]) continue;
      const auto before = [&](const Place& a, const Place& b) {
        return a.begin_ns < b.begin_ns || (a.begin_ns == b.begin_ns && a.end_ns > b.end_ns);
      };
      if (first == streams.size() || before(streams[i]->place, streams[first]->place)) first = i;
    }
    if (first == streams.size()) break;
    Stream& stream = *streams[first];
    Event event{};
    stream.Fill(event);
    event.begin_ns = clock_.ToCluster(stream.place.begin_ns);
    event.end_ns = std::max(event.begin_ns, clock_.ToCluster(stream.place.end_ns));
    const bool inside = event.end_ns >= selection.window.begin && event.begin_ns < selection.window.end;
    if (inside && IsDetail(event.kind) && !IsMark(event) && event.end_ns - event.begin_ns < selection.least_ns) {
      ++left_out[static_cast<std::size_t>(event.kind)];
    } else if (inside) {
      if (event.kind == EventKind::kCollective) {
        if (event.number < member_of.size() && member_of[event.number] != kNone)
          PutInstance(member_of[event.number], selection, event);
        LS_CHECK(in_flight.Until(event.begin_ns, f));
        LS_CHECK(in_flight.Add(event.begin_ns, event.end_ns, event.as<schema::Collectives::Row>().bytes, f));
      }
      LS_CHECK(f(event));
    }
    stream.Pop();
    there[first] = stream.Ready();
  }
  return in_flight.Until(INT64_MAX, f);
}

}  // namespace lockstep::exporters
