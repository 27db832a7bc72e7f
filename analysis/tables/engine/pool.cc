#include "analysis/tables/engine/pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::tables {
namespace {

// Appends text that differs for cells that differ.
void AppendKey(const Cell& cell, std::string& key) {
  if (const auto* number = std::get_if<std::int64_t>(&cell))
    fmt::format_to(std::back_inserter(key), "i{}", *number);
  else if (const auto* real = std::get_if<double>(&cell))
    fmt::format_to(std::back_inserter(key), "d{}", *real);
  else if (const auto* text = std::get_if<std::string>(&cell))
    fmt::format_to(std::back_inserter(key), "s{}:{}", text->size(), *text);
  key += '|';
}

void Combine(Pool rule, const Cell& of_rank, Cell& pooled) {
  if (std::holds_alternative<std::monostate>(of_rank)) return;
  if (std::holds_alternative<std::monostate>(pooled)) {
    pooled = of_rank;
    return;
  }
  const auto apply = [&](auto a, auto b) {
    return rule == Pool::kSum ? a + b : rule == Pool::kMin ? std::min(a, b) : std::max(a, b);
  };
  if (const auto* a = std::get_if<std::int64_t>(&pooled), *b = std::get_if<std::int64_t>(&of_rank); a && b)
    pooled = apply(*a, *b);
  else if (const auto* x = std::get_if<double>(&pooled), *y = std::get_if<double>(&of_rank); x && y)
    pooled = apply(*x, *y);
}

}  // namespace

RankPool::RankPool(const TableKind& kind) : kind_(kind), columns_(kind.columns->list()) {
  possible_ = std::any_of(columns_.begin(), columns_.end(), [](const TableColumn& c) { return c.pool == Pool::kKey; });
}

void RankPool::Add(const std::vector<TableRow>& rows) {
  std::string key;
  for (const TableRow& row : rows) {
    key.clear();
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (columns_[c].pool == Pool::kKey) AppendKey(row[c], key);
    const auto [at, first] = row_of_.try_emplace(key, rows_.size());
    if (first) {
      TableRow fresh(columns_.size());
      fresh[0] = std::string("all");
      for (std::size_t c = 1; c < columns_.size(); ++c)
        if (columns_[c].pool == Pool::kKey) fresh[c] = row[c];
      rows_.push_back(std::move(fresh));
    }
    TableRow& pooled = rows_[at->second];
    if (kind_.pool_row != nullptr) kind_.pool_row(row, first, pooled);
    for (std::size_t c = 1; c < columns_.size(); ++c)
      if (columns_[c].pool > Pool::kKey) Combine(columns_[c].pool, row[c], pooled[c]);
  }
}

}  // namespace lockstep::tables
