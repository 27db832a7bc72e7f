#include "trace/spool/record_stream.h"

#include <algorithm>
#include <cstring>

namespace lockstep::trace {

void RecordStream::Seal() {
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.first_slot < b.first_slot; });
}

std::uint64_t RecordStream::end_slot() const {
  std::uint64_t end = 0;
  for (const Piece& piece : pieces_) end = std::max(end, piece.first_slot + piece.slots.size() / kSlotBytes);
  return end;
}

std::span<const std::byte> RecordStream::Peek() {
  while (piece_ < pieces_.size()) {
    const Piece& piece = pieces_[piece_];
    if (!entered_) {
      entered_ = true;
      const std::uint64_t slots = piece.slots.size() / kSlotBytes;
      if (piece.first_slot > expected_) {
        missing_slots_ += piece.first_slot - expected_;
        hole_ = true;
      }
      // Blocks hold whole records, so an overlap ends where a record does.
      const std::uint64_t overlap = piece.first_slot < expected_ ? expected_ - piece.first_slot : 0;
      offset_ = static_cast<std::size_t>(std::min(overlap, slots)) * kSlotBytes;
      expected_ = std::max(expected_, piece.first_slot + slots);
    }
    const std::size_t left = piece.slots.size() - offset_;
    if (left >= kSlotBytes) {
      const std::byte* at = piece.slots.data() + offset_;
      RecordHead head;
      std::memcpy(&head, at, sizeof head);
      const std::size_t bytes = std::size_t{head.slots} * kSlotBytes;
      if (head.slots != 0 && bytes <= left) {
        if (head.kind != RecordKind::kPad) return {at, bytes};
        offset_ += bytes;
        continue;
      }
    }
    // It is not known where the next record begins, so reading continues with the next piece.
    if (left != 0) ++broken_records_;
    ++piece_;
    entered_ = false;
  }
  return {};
}

std::span<const std::byte> RecordStream::Next() {
  const std::span<const std::byte> record = Peek();
  offset_ += record.size();
  return record;
}

}  // namespace lockstep::trace
