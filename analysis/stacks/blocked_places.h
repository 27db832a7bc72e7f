#pragma once
// Where in its program a rank's training thread was blocked, from the recorded calls of libc (table `blocked`), and the
// words for it.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/core/model.h"
#include "core/interval.h"
#include "core/schema.h"

namespace lockstep::analysis {

// The program's own function and line, or, where these are not known, the library that called and what it called.
struct BlockedPlace {
  std::uint8_t kind = schema::BlockedKind::kOther;
  std::string function, file;
  std::int64_t line = 0;
  std::string module, call;
  friend auto operator<=>(const BlockedPlace&, const BlockedPlace&) = default;
};

// "sleep", "file": as the schema calls a kind.
std::string_view NameOfKind(std::uint8_t kind);

// Of a row of `blocked`.
BlockedPlace PlaceOfRow(const schema::RankTables& tables, std::uint64_t row);

struct BlockedSum {
  std::vector<std::int64_t> ns;                                // By window.
  std::int64_t count = 0;                                      // Calls.
  std::map<std::string, std::int64_t> calls, details, ranges;  // Time by function of libc; file or peer; range around.

  void Add(const BlockedSum& next);  // What the next windows show, or nothing of the place.
  std::int64_t Total() const;
};
using BlockedSums = std::map<BlockedPlace, BlockedSum>;

// The time in which the training thread was blocked and that counts as its own (merge/timeline/blocked_time.h) within
// each of these windows: rank clock, in order, disjoint.
BlockedSums BlockedWithin(const schema::RankTables& tables, const std::vector<Interval>& windows);

// `ns_per_step` is the mean over the windows.
BlockedAt Described(const BlockedPlace& place, const BlockedSum& sum);

// "sleep", "fsync of checkpoint.pt", "wait for Python's lock (GIL)".
Clause WaitName(const BlockedAt& at);
// "train.py:32"; the library; "" not known.
std::string LineOf(const BlockedAt& at);
// "sleep in backward (slow_layer, train.py:32)".
Clause WhatAndWhere(const BlockedAt& at);
// The text of that, of one row of `blocked`.
std::string TextOfRow(const schema::RankTables& tables, std::uint64_t row);
// Whether it is said of both that they are blocked in the same and at the same place.
bool SamePlace(const BlockedAt& a, const BlockedAt& b);
// What a rank does: "sleeps 201 ms in backward (slow_layer, train.py:32)"; `brief`: "sleeps 201 ms (train.py:32)".
Clause DoesFor(const BlockedAt& at, std::int64_t ns, bool brief);
// ", every 10 steps", ", in 6 of 60 steps"; none in nearly all.
Clauses HowOften(const BlockedAt& at);
Clause ActionFor(const BlockedAt& at);

}  // namespace lockstep::analysis
