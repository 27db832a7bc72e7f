#pragma once
// Who is in which communicator. A communicator of the description stands for one
// or more groups, numbered from 0; all of it is arithmetic, so that thousands of
// ranks cost nothing.

#include <cstdint>
#include <vector>

#include "make_run/spec.h"

namespace lockstep::make_run {

// The group of `rank` on a communicator, -1 if it is no member.
std::int32_t GroupOf(const Spec& spec, std::size_t comm, std::int32_t rank);
std::int32_t GroupCount(const Spec& spec, std::size_t comm);
std::int32_t MemberCount(const Spec& spec, std::size_t comm, std::int32_t group);
// World rank of the n-th member.
std::int32_t Member(const Spec& spec, std::size_t comm, std::int32_t group, std::int32_t n);
// Place of a member in its group.
std::int32_t CommRank(const Spec& spec, std::size_t comm, std::int32_t world_rank);

}  // namespace lockstep::make_run
