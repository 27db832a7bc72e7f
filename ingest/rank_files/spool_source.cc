// Spools of agents that could not finish their rank file, with the rings that they left.

#include <cstring>
#include <utility>

#include "core/spool_layout.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/decode/decode.h"
#include "trace/spool/spool_facts.h"

namespace lockstep::ingest {
namespace {

schema::RankTables HeadOf(schema::RankTables tables) {
  tables.ForEachTable([](auto& table) {
    if (table.kInfo.Is(schema::kPieces) && !table.kInfo.Is(schema::kHeadInPart)) table = {};
  });
  return tables;
}

// Keeps only the small tables; the long ones are decoded again when they are needed, so that a merge holds only one
// rank's events per thread.
class SpoolSource final : public RankSource {
 public:
  SpoolSource(trace::DecodeInput input, std::uint32_t process, schema::RankTables tables)
      : input_(std::move(input)),
        process_(process),
        events_(RowsOf(tables, schema::kEvents)),
        head_(HeadOf(std::move(tables))) {}

  std::uint64_t EventRows() const override { return events_; }
  bool complete() const override { return false; }

 private:
  ReadTables LoadHead() const override { return {head_, {}}; }
  // The records of a spool are not in the order of the tables, so it is decoded completely. Merge and analyze make rank
  // files of spools first, so this is for directories that cannot be written to.
  std::unique_ptr<EventReader> LoadEvents() const override {
    ReadTables all = LoadAll();
    return ReadFromMemory(std::move(all.tables), std::move(all.damaged));
  }
  ReadTables LoadAll() const override {
    auto decoded = trace::DecodeSpool(input_);
    if (!decoded.ok()) return {{}, {decoded.error().what}};
    for (trace::DecodedProcess& process : decoded.value().processes)
      if (process.process == process_) return {std::move(process.tables), {}};
    return {{}, {"the spool no longer holds this process"}};
  }

  trace::DecodeInput input_;
  std::uint32_t process_;
  std::uint64_t events_;
  schema::RankTables head_;
};

bool SniffSpool(std::string_view first_bytes) {
  std::uint32_t magic = 0;
  if (first_bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, first_bytes.data(), sizeof magic);
  return magic == kSpoolMagic;
}

Result<RankSources> OpenSpool(const std::string& path) {
  const trace::DecodeInput input{path, trace::SegmentOfSpool(path)};
  LS_TRY(trace::Decoded decoded, trace::DecodeSpool(input));
  RankSources sources;
  for (trace::DecodedProcess& process : decoded.processes)
    sources.push_back(std::make_unique<SpoolSource>(input, process.process, std::move(process.tables)));
  if (sources.empty())
    return Error{ErrorCode::kMalformed, "the spool holds no process", path, "nothing was recorded in this slot"};
  return sources;
}

}  // namespace

extern const RankFormat kSpoolFormat;
const RankFormat kSpoolFormat = {"spool", SniffSpool, OpenSpool};

}  // namespace lockstep::ingest
