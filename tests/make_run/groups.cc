#include "make_run/groups.h"

#include <algorithm>

namespace lockstep::make_run {
namespace {

// block=K: groups of K neighbours. stride=J: ranks equal modulo J. Both: within each
// block of K the ranks equal modulo J. Neither: everyone is one block.
struct Shape {
  std::int32_t block, stride;
};
Shape ShapeOf(const Spec& spec, const CommSpec& comm) {
  const std::int32_t block = comm.block > 0 ? comm.block : spec.ranks;
  return {block, comm.stride > 0 ? comm.stride : 1};
}
// Groups of one block of `size` ranks.
std::int32_t GroupsIn(const Shape& shape, std::int32_t size) { return std::min(shape.stride, size); }

}  // namespace

std::int32_t GroupOf(const Spec& spec, std::size_t comm, std::int32_t rank) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty()) return std::find(c.ranks.begin(), c.ranks.end(), rank) == c.ranks.end() ? -1 : 0;
  const Shape shape = ShapeOf(spec, c);
  return rank / shape.block * GroupsIn(shape, shape.block) + rank % shape.block % shape.stride;
}

std::int32_t GroupCount(const Spec& spec, std::size_t comm) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty()) return 1;
  const Shape shape = ShapeOf(spec, c);
  return spec.ranks / shape.block * GroupsIn(shape, shape.block) + GroupsIn(shape, spec.ranks % shape.block);
}

std::int32_t MemberCount(const Spec& spec, std::size_t comm, std::int32_t group) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty()) return static_cast<std::int32_t>(c.ranks.size());
  const Shape shape = ShapeOf(spec, c);
  const std::int32_t per_block = GroupsIn(shape, shape.block);
  const std::int32_t block = group / per_block, within = group % per_block;
  const std::int32_t size = std::min(shape.block, spec.ranks - block * shape.block);
  return (size - within + shape.stride - 1) / shape.stride;
}

std::int32_t Member(const Spec& spec, std::size_t comm, std::int32_t group, std::int32_t n) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty()) return c.ranks[static_cast<std::size_t>(n)];
  const Shape shape = ShapeOf(spec, c);
  const std::int32_t per_block = GroupsIn(shape, shape.block);
  return group / per_block * shape.block + group % per_block + n * shape.stride;
}

std::int32_t CommRank(const Spec& spec, std::size_t comm, std::int32_t world_rank) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty())
    return static_cast<std::int32_t>(std::find(c.ranks.begin(), c.ranks.end(), world_rank) - c.ranks.begin());
  const Shape shape = ShapeOf(spec, c);
  return world_rank % shape.block / shape.stride;
}

}  // namespace lockstep::make_run
