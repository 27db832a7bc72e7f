#pragma once
// The rows of one table as events in order of their begin.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "export/common/event.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::exporters {

// The time of a row, rank clock.
struct Place {
  std::int64_t begin_ns, end_ns;
  std::uint16_t depth = 0;  // Of two rows with equal times the one with the lower depth is outside.
  bool ended = true;
};

// Thread: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns false after the last row; else `place` is the current row's.
  virtual bool Ready() = 0;
  // Row and kind of the current one, valid until Pop.
  virtual void Fill(Event& event) = 0;
  virtual void Pop() = 0;
  Place place;
};

// Rows may come after rows that begin later if these are in their own piece or the one before it; with `whole` in any
// order, but then the whole table is held in memory. `Where(row)` gives a Place; rows without a time are skipped.
template <typename Table, typename Where>
class TableStream final : public Stream {
 public:
  TableStream(ingest::EventReader& reader, EventKind kind, bool whole, Where where)
      : cursor_(reader), kind_(kind), whole_(whole), where_(std::move(where)) {}

  bool Ready() override {
    while (more_ && (at_ == order_.size() || items_[order_[at_]].place.begin_ns > safe_)) Load();
    if (at_ == order_.size()) return false;
    place = items_[order_[at_]].place;
    return true;
  }
  void Fill(Event& event) override {
    const Item& item = items_[order_[at_]];
    event.kind = kind_;
    event.row = &item.row;
    event.number = item.number;
    event.ended = item.place.ended;
  }
  void Pop() override { ++at_; }

 private:
  struct Item {
    Place place;
    std::uint64_t number;
    typename Table::Row row;
  };

  void Load() {
    // The remaining rows move to the front.
    std::vector<Item> items;
    items.reserve(order_.size() - at_ + ingest::kPieceRows);
    for (; at_ < order_.size(); ++at_) items.push_back(items_[order_[at_]]);
    items_ = std::move(items);
    at_ = 0;
    const std::int64_t before = latest_;
    do {
      const Table* piece = cursor_.Next();
      if (piece == nullptr) {
        more_ = false;
        break;
      }
      for (std::size_t i = 0; i < piece->rows(); ++i) {
        Item item{{}, cursor_.first_row() + i, piece->Get(i)};
        item.place = where_(item.row);
        if (item.place.begin_ns == schema::kNoTime) continue;
        latest_ = std::max(latest_, item.place.begin_ns);
        items_.push_back(std::move(item));
      }
    } while (whole_);
    safe_ = more_ ? before : INT64_MAX;
    order_.resize(items_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::uint32_t>(i);
    const auto earlier = [this](std::uint32_t a, std::uint32_t b) {
      const Item &x = items_[a], &y = items_[b];
      if (x.place.begin_ns != y.place.begin_ns) return x.place.begin_ns < y.place.begin_ns;
      if (x.place.end_ns != y.place.end_ns) return x.place.end_ns > y.place.end_ns;
      if (x.place.depth != y.place.depth) return x.place.depth < y.place.depth;
      return x.number < y.number;
    };
    if (!std::is_sorted(order_.begin(), order_.end(), earlier)) std::sort(order_.begin(), order_.end(), earlier);
  }

  ingest::RowCursor<Table> cursor_;
  EventKind kind_;
  bool whole_, more_ = true;
  Where where_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> order_;
  std::size_t at_ = 0;
  std::int64_t latest_ = INT64_MIN, safe_ = INT64_MIN;
};

// The same over a few rows in memory.
template <typename Row>
class RowsStream final : public Stream {
 public:
  struct Item {
    Place place;
    std::uint64_t number;
    Row row;
  };
  RowsStream(std::vector<Item> items, EventKind kind) : items_(std::move(items)), kind_(kind) {
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      if (a.place.begin_ns != b.place.begin_ns) return a.place.begin_ns < b.place.begin_ns;
      return a.place.end_ns > b.place.end_ns;
    });
  }
  bool Ready() override {
    if (at_ == items_.size()) return false;
    place = items_[at_].place;
    return true;
  }
  void Fill(Event& event) override {
    event.kind = kind_;
    event.row = static_cast<const Row*>(&items_[at_].row);
    event.number = items_[at_].number;
    event.ended = items_[at_].place.ended;
  }
  void Pop() override { ++at_; }

 private:
  std::vector<Item> items_;
  EventKind kind_;
  std::size_t at_ = 0;
};

}  // namespace lockstep::exporters
