#pragma once
// The records of one ring, in order, from the pieces that spool and segment hold.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/record.h"

namespace lockstep::trace {

class RecordStream {
 public:
  // Pieces may overlap, repeat or leave holes; `slots` must live as long as the stream.
  void AddPiece(std::uint64_t first_slot, std::span<const std::byte> slots) { pieces_.push_back({first_slot, slots}); }
  // Sorts the pieces by slot. Call once, before Next.
  void Seal();

  // The next whole record, of any alignment; empty at the end. Padding, holes and damage are skipped and counted.
  // `kind` is returned as the record has it.
  std::span<const std::byte> Next();
  // The record that Next would return, without moving on.
  std::span<const std::byte> Peek();

  std::uint64_t end_slot() const;  // The end of the last slot of any piece.
  std::uint64_t missing_slots() const { return missing_slots_; }
  std::uint64_t broken_records() const { return broken_records_; }  // Cut, or of an impossible length.
  bool TakeHole() {  // Returns true once after each hole that Next skipped.
    const bool hole = hole_;
    hole_ = false;
    return hole;
  }

 private:
  struct Piece {
    std::uint64_t first_slot;
    std::span<const std::byte> slots;
  };
  std::vector<Piece> pieces_;
  std::size_t piece_ = 0;
  std::size_t offset_ = 0;      // Into the piece.
  std::uint64_t expected_ = 0;  // Slot that should come next.
  bool entered_ = false;        // The overlap of this piece with the last one has been skipped.
  bool hole_ = false;
  std::uint64_t missing_slots_ = 0, broken_records_ = 0;
};

// Smallest number of slots a record of that kind can have; 0: unknown kind.
constexpr std::uint16_t MinSlots(RecordKind kind) {
  switch (kind) {
    case RecordKind::kGpuDevice:
    case RecordKind::kNcclBegin:
    case RecordKind::kNcclCall:
      return 3;
    case RecordKind::kMpi:
    case RecordKind::kComm:
    case RecordKind::kLoss:
    case RecordKind::kBlocked:
    case RecordKind::kGpuKernel:
    case RecordKind::kGpuShape:
    case RecordKind::kGpuCopy:
    case RecordKind::kGpuSync:
    case RecordKind::kGpuMemory:
    case RecordKind::kNcclComm:
    case RecordKind::kTorchBegin:
      return 2;
    case RecordKind::kPad:
    case RecordKind::kRange:
    case RecordKind::kCompletion:
    case RecordKind::kPoll:
    case RecordKind::kString:
    case RecordKind::kCallStack:
    case RecordKind::kStep:
    case RecordKind::kCpu:
    case RecordKind::kGap:
    case RecordKind::kThreadName:
    case RecordKind::kMark:
    case RecordKind::kRangeStartEnd:
    case RecordKind::kWindow:
    case RecordKind::kDomain:
    case RecordKind::kFact:
    case RecordKind::kMemory:
    case RecordKind::kRangeStart:
    case RecordKind::kRangeEnd:
    case RecordKind::kCategory:
    case RecordKind::kGpuApi:
    case RecordKind::kGpuOverhead:
    case RecordKind::kNcclEnd:
    case RecordKind::kTorchEnd:
      return 1;
  }
  return 0;
}

}  // namespace lockstep::trace
