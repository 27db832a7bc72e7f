#include "merge/match/clock_bounds.h"

#include "core/collective.h"
#include "core/hash.h"
#include "merge/match/instance_key.h"
#include "merge/match/order.h"

namespace lockstep::merge {

std::vector<AlignCollective> BoundsOf(const schema::RankTables& head) {
  std::vector<AlignCollective> bounds;
  const schema::Collectives& c = head.collectives;
  for (std::size_t i = 0; i < c.rows(); ++i) {
    const auto kind = static_cast<CollectiveKind>(c.kind[i]);
    if (!Splits(kind) || c.end_ns[i] == schema::kNoTime) continue;
    const bool gpu = c.mode[i] == schema::Code(CollectiveMode::kGpu);
    if ((c.bytes[i] == 0 && kind != CollectiveKind::kBarrier && !gpu) || c.seq[i] >= kAmbiguousSeq) continue;
    const std::uint32_t comm = c.comm[i];
    if (!Identified(head.comms, comm) || head.comms.kind[comm] == schema::CommKind::kInter) continue;
    Hash64 sort;
    sort.Add(head.comms.global_id[comm]);
    sort.Add(c.kind[i]);
    sort.Add(c.bytes[i]);
    std::uint64_t id = head.comms.global_id[comm];
    if (const std::uint8_t function = KeyFunction(head.comms, comm, c.kind[i]); function != 0) {
      Hash64 key;
      key.Add(id);
      key.Add(function);
      id = key.value();
    }
    bounds.push_back({id, c.seq[i], c.start[i], gpu, c.begin_ns[i], c.end_ns[i], sort.value(), c.uneven[i] != 0});
  }
  return bounds;
}

}  // namespace lockstep::merge
