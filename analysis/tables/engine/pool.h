#pragma once
// Combines rows of many ranks into rows of rank "all".

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

class RankPool {
 public:
  explicit RankPool(const TableKind& kind);

  // False if no column is a key: rows of this table cannot be pooled.
  bool possible() const { return possible_; }
  // Ranks must come in the same order for the same result, because doubles are summed.
  void Add(const std::vector<TableRow>& rows);
  std::vector<TableRow> Take() { return std::move(rows_); }

 private:
  const TableKind& kind_;
  const std::vector<TableColumn>& columns_;
  bool possible_ = false;
  std::unordered_map<std::string, std::size_t> row_of_;
  std::vector<TableRow> rows_;
};

}  // namespace lockstep::tables
