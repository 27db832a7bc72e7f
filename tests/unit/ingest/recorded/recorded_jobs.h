#pragma once
// Ranks that recorded a job that does not move, written down by hand, and whom the judge names from them.

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mpi_ops.h"
#include "core/window.h"
#include "hang/judge.h"
#include "ingest/recorded/progress.h"
#include "trace/decode/open_call.h"

namespace lockstep::recorded {

using hang::Cause;
using schema::kNoTime;
using trace::Awaits;

inline constexpr std::int64_t kMs = 1'000'000, kEnd = 60'000 * kMs;
inline constexpr std::uint32_t kWorld = 0;

class MemorySource final : public ingest::RankSource {
 public:
  explicit MemorySource(const schema::RankTables& tables) : tables_(tables) {}
  std::uint64_t EventRows() const override { return 0; }
  bool complete() const override { return true; }

 private:
  ingest::ReadTables LoadHead() const override { return {tables_, {}}; }
  std::unique_ptr<ingest::EventReader> LoadEvents() const override { return ingest::ReadFromMemory(tables_); }
  ingest::ReadTables LoadAll() const override { return {tables_, {}}; }
  const schema::RankTables& tables_;
};

// A rank that recorded from the begin to kEnd, and what it did.
class Rank {
 public:
  explicit Rank(int size) {
    t.processes.Append({.process = 0,
                        .pid = 100,
                        .begin_ns = 0,
                        .end_ns = kEnd,
                        .ended = schema::ProcessEnd::kSignal,
                        .end_code = 15});
    t.threads.Append({.thread = 0, .process = 0, .tid = 100, .training = 1});
    t.windows.Append({.begin_ns = 0, .end_ns = kEnd, .begin_cause = static_cast<std::uint8_t>(WindowCause::kRunBegin)});
    t.clock_snapshots.Append({.ticks = 0, .raw_ns = 0, .realtime_ns = 1'000'000'000'000});
    t.comms.Append({.comm = 0,
                    .global_id = 77,
                    .size = static_cast<std::uint32_t>(size),
                    .kind = schema::CommKind::kIntra,
                    .unidentified = 0,
                    .first_world_rank = 0,
                    .stride = 1});
  }
  Rank& Reduced(std::uint64_t count) {
    for (std::uint64_t seq = 0; seq < count; ++seq) Collective(seq, kEnd / 2);
    return *this;
  }
  Rank& Collective(std::uint64_t seq, std::int64_t end_ns) {
    t.collectives.Append({.comm = kWorld,
                          .seq = seq,
                          .kind = schema::Code(CollectiveKind::kAllReduce),
                          .mode = schema::Code(CollectiveMode::kBlocking),
                          .uneven = 0,
                          .begin_ns = Next(),
                          .last_incomplete_ns = kNoTime,
                          .end_ns = end_ns,
                          .bytes = 80,
                          .count = 10,
                          .dtype = schema::Code(DataType::kFloat64),
                          .root = -1});
    if (end_ns == kNoTime) t.collectives.mode.back() = schema::Code(CollectiveMode::kNonBlocking);
    return *this;
  }
  Rank& Inside(MpiOp op, std::uint64_t seq, std::uint64_t count = 10, std::int32_t root = -1) {
    return Fact({.op = static_cast<std::uint16_t>(op),
                 .awaits = Awaits::kCollective,
                 .begin_ns = Next(),
                 .comm = kWorld,
                 .seq = seq,
                 .bytes = count * 8,
                 .count = count,
                 .dtype = schema::Code(DataType::kFloat64),
                 .peer = root});
  }
  Rank& Message(bool sends, std::int32_t peer, std::int32_t tag, std::uint64_t seq, bool open = false) {
    t.p2p.Append({.comm = kWorld,
                  .direction = sends ? schema::Direction::kSend : schema::Direction::kReceive,
                  .mode = schema::Code(open ? CollectiveMode::kNonBlocking : CollectiveMode::kBlocking),
                  .peer = peer,
                  .peer_world_rank = peer,
                  .tag = tag,
                  .seq = seq,
                  .begin_ns = Next(),
                  .last_incomplete_ns = kNoTime,
                  .bytes = 8,
                  .outcome = open ? schema::RequestOutcome::kNeverCompleted : schema::RequestOutcome::kCompleted});
    return *this;
  }
  Rank& InMessage(MpiOp op, std::int32_t peer, std::int32_t tag) {
    return Fact({.op = static_cast<std::uint16_t>(op),
                 .awaits = op == MpiOp::kRecv || op == MpiOp::kProbe ? Awaits::kReceive : Awaits::kSend,
                 .begin_ns = Next(),
                 .comm = kWorld,
                 .bytes = 8,
                 .peer = peer,
                 .tag = tag});
  }
  // In MPI_Waitall for the last `count` messages that were posted.
  Rank& WaitsFor(std::uint32_t count, MpiOp op = MpiOp::kWaitall) {
    const std::int64_t begin_ns = Next();
    for (std::size_t i = t.p2p.rows() - count; i < t.p2p.rows(); ++i)
      Fact({.op = static_cast<std::uint16_t>(op),
            .awaits = t.p2p.direction[i] == schema::Direction::kSend ? Awaits::kSend : Awaits::kReceive,
            .requests = count,
            .begin_ns = begin_ns,
            .posted_ns = t.p2p.begin_ns[i],
            .comm = kWorld,
            .peer = t.p2p.peer[i],
            .tag = t.p2p.tag[i]});
    return *this;
  }
  Rank& Fact(const trace::OpenCallFact& call) {
    return Meta("fact.open_call" + (++facts_ > 1 ? "." + std::to_string(facts_) : ""), trace::TextOf(call));
  }
  Rank& Meta(std::string_view key, std::string_view value) {
    t.meta.Append({.key = strings_.Intern(key), .value = strings_.Intern(value)});
    return *this;
  }
  // Of PyTorch over gloo; its Python calls are recorded, and one of them has ended.
  Rank& OfTorch() {
    t.comms.kind.back() = schema::CommKind::kTorchGroup;
    t.ranges.Append({.begin_ns = 0, .duration_ns = kMs, .thread = 0, .name = strings_.Intern("c10d::barrier")});
    return *this;
  }
  Rank& Called(MpiOp op, std::uint8_t outcome, std::int64_t begin_ns, std::int64_t duration_ns) {
    t.mpi_calls.Append({.begin_ns = begin_ns,
                        .duration_ns = duration_ns,
                        .op = static_cast<std::uint16_t>(op),
                        .comm = kWorld,
                        .outcome = outcome});
    return *this;
  }
  Rank& Lost(Loss loss) {
    t.losses.Append({.name = strings_.Intern(Info(loss).name), .count = 3});
    return *this;
  }
  Rank& Ended(std::int64_t ns, std::uint8_t how = schema::ProcessEnd::kExit, std::int32_t code = 0) {
    t.processes.end_ns[0] = t.windows.end_ns[0] = ns;
    t.processes.ended[0] = how;
    t.processes.end_code[0] = code;
    return *this;
  }

  std::uint32_t Text(std::string_view text) { return strings_.Intern(text); }

  schema::RankTables t;

 private:
  std::int64_t Next() { return now_ns_ += kMs; }
  std::int64_t now_ns_ = 1000 * kMs;
  int facts_ = 0;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings_{t.strings, t.string_bytes};
};

struct Said {
  Cause cause;
  std::vector<std::int32_t> culprits;
  friend bool operator==(const Said&, const Said&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const Said& said) {
  out << hang::NameOf(said.cause);
  for (const std::int32_t rank : said.culprits) out << " " << rank;
  return out;
}

using Ranks = std::vector<std::unique_ptr<Rank>>;

inline Ranks Job(int size, std::uint64_t reduced = 5) {
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Rank>(size));
    ranks.back()->Reduced(reduced);
  }
  return ranks;
}

inline hang::Progress ProgressOfJob(const Ranks& ranks) {
  std::vector<std::unique_ptr<MemorySource>> sources;
  std::vector<RecordedRank> recorded;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == nullptr) continue;
    sources.push_back(std::make_unique<MemorySource>(ranks[rank]->t));
    recorded.push_back({static_cast<std::int32_t>(rank), false, sources.back().get(), &ranks[rank]->t});
  }
  return ProgressOf(recorded, static_cast<std::int32_t>(ranks.size()), 5'000 * kMs, 1).progress;
}

inline std::vector<Said> JudgeJob(const Ranks& ranks) {
  std::vector<Said> said;
  for (const hang::Verdict& verdict : hang::Judge(ProgressOfJob(ranks), {.least_wait_ns = 5'000 * kMs}).verdicts)
    said.push_back({verdict.cause, verdict.culprits});
  return said;
}
inline std::vector<Said> Only(Cause cause, std::vector<std::int32_t> culprits) {
  return {{cause, std::move(culprits)}};
}

}  // namespace lockstep::recorded
