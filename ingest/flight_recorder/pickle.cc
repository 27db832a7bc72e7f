#include "ingest/flight_recorder/pickle.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::flight_recorder {
namespace {

// Lists within lists, open at once: dumps have five.
constexpr std::size_t kMostMarks = 1000;

enum class Step : std::uint8_t { kGoOn, kStop, kCut, kDamaged, kObject, kTooLarge, kTooDeep };

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Result<Parsed> Run() {
    Step step = Step::kGoOn;
    std::size_t at = 0;
    while (step == Step::kGoOn) {
      at = at_;
      step = at_ < bytes_.size() ? Do(static_cast<unsigned char>(bytes_[at_++])) : Step::kCut;
    }
    if (step == Step::kStop) {
      if (stack_.size() != 1 || !marks_.empty())
        step = Step::kDamaged;
      else
        return Parsed{std::move(document_), stack_.back()};
    }
    return Why(step, at);
  }

 private:
  static Error Why(Step step, std::size_t at) {
    const std::string where = "byte " + std::to_string(at);
    switch (step) {
      case Step::kObject:
        return {ErrorCode::kMalformed, "the pickle holds an object that is no plain value: it is not read", where,
                "take a dump that PyTorch wrote; no code of a file is ever run"};
      case Step::kTooLarge:
        return {ErrorCode::kMalformed, "the pickle holds more values than any dump", where,
                "take a dump that PyTorch wrote"};
      case Step::kTooDeep:
        return {ErrorCode::kMalformed, "the pickle is nested deeper than any dump", where,
                "take a dump that PyTorch wrote"};
      case Step::kCut:
        return {ErrorCode::kMalformed, "the pickle is cut off", where,
                "its rank ended while it wrote: go on without it"};
      case Step::kGoOn:
      case Step::kStop:
      case Step::kDamaged:
        break;
    }
    return {ErrorCode::kMalformed, "the pickle is damaged", where, "copy it again, or go on without it"};
  }

  bool Has(std::uint64_t count) const { return count <= bytes_.size() - at_; }
  // Little-endian; the caller has looked whether the bytes are there.
  std::uint64_t Number(std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
    at_ += count;
    return value;
  }
  Step Push(ValueId value) {
    if (value == kNoValue) return Step::kTooLarge;
    stack_.push_back(value);
    return Step::kGoOn;
  }
  // What lies on the stack above the last mark, or below it in this list.
  bool Room(std::size_t count) const { return stack_.size() >= count + (marks_.empty() ? 0 : marks_.back()); }

  Step PushInteger(std::size_t count, bool is_signed) {
    if (!Has(count)) return Step::kCut;
    const std::uint64_t value = Number(count);
    if (is_signed && count < 8 && (value >> (8 * count - 1)) != 0)
      return Push(document_.AddInteger(static_cast<std::int64_t>(value) - (std::int64_t{1} << (8 * count))));
    return Push(document_.AddInteger(static_cast<std::int64_t>(value)));
  }
  // An integer of any length. One that does not fit is the nearest that does.
  Step PushLong(std::size_t length_bytes) {
    if (!Has(length_bytes)) return Step::kCut;
    const std::uint64_t length = Number(length_bytes);
    if (!Has(length)) return Step::kCut;
    if (length == 0) return Push(document_.AddInteger(0));
    if (length <= 8) return PushInteger(length, true);
    const bool negative = (static_cast<unsigned char>(bytes_[at_ + length - 1]) & 0x80) != 0;
    at_ += length;
    return Push(document_.AddInteger(negative ? INT64_MIN : INT64_MAX));
  }
  Step PushText(std::size_t length_bytes) {
    if (!Has(length_bytes)) return Step::kCut;
    const std::uint64_t length = Number(length_bytes);
    if (!Has(length)) return Step::kCut;
    const std::string_view text = bytes_.substr(at_, length);
    at_ += length;
    return Push(document_.AddText(text));
  }
  Step PushReal() {
    if (!Has(8)) return Step::kCut;
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i)
      bits = bits << 8 | static_cast<unsigned char>(bytes_[at_ + static_cast<std::size_t>(i)]);
    at_ += 8;
    return Push(document_.AddReal(std::bit_cast<double>(bits)));
  }

  // The items from `first` on become a new list or dict, or part of the one below them.
  Step Gather(std::size_t first, ValueId into) {
    if (into == kNoValue) return Step::kTooLarge;
    if (document_.IsDict(into) && (stack_.size() - first) % 2 != 0) return Step::kDamaged;
    for (std::size_t i = first; i < stack_.size(); ++i)
      if (!document_.Append(into, stack_[i])) return Step::kDamaged;
    stack_.resize(first);
    return Step::kGoOn;
  }
  Step NewFromMark(ValueId into) {
    if (marks_.empty()) return Step::kDamaged;
    const Step step = Gather(marks_.back(), into);
    marks_.pop_back();
    return step == Step::kGoOn ? Push(into) : step;
  }
  Step NewFromTop(std::size_t count) {
    if (!Room(count)) return Step::kDamaged;
    const ValueId into = document_.AddList();
    const Step step = Gather(stack_.size() - count, into);
    return step == Step::kGoOn ? Push(into) : step;
  }
  Step AppendFromMark(bool dict) {
    if (marks_.empty() || marks_.back() == 0) return Step::kDamaged;
    const std::size_t first = marks_.back();
    marks_.pop_back();
    if (!Room(0) || (!marks_.empty() && first <= marks_.back())) return Step::kDamaged;
    return AppendTo(stack_[first - 1], first, dict);
  }
  Step AppendFromTop(std::size_t count, bool dict) {
    if (!Room(count + 1)) return Step::kDamaged;
    const std::size_t first = stack_.size() - count;
    return AppendTo(stack_[first - 1], first, dict);
  }
  Step AppendTo(ValueId into, std::size_t first, bool dict) {
    return (dict ? document_.IsDict(into) : document_.IsList(into)) ? Gather(first, into) : Step::kDamaged;
  }

  Step Put(std::uint64_t place) {
    // Each value is numbered once at most; a larger number would be a way to ask for memory.
    if (!Room(1) || place > document_.size()) return Step::kDamaged;
    if (place >= memo_.size()) memo_.resize(place + 1, kNoValue);
    memo_[place] = stack_.back();
    if (place == memoized_) ++memoized_;
    return Step::kGoOn;
  }
  Step PutAt(std::size_t count) {
    if (!Has(count)) return Step::kCut;
    return Put(Number(count));
  }
  Step GetFrom(std::size_t count) {
    if (!Has(count)) return Step::kCut;
    const std::uint64_t place = Number(count);
    if (place >= memo_.size() || memo_[place] == kNoValue) return Step::kDamaged;
    stack_.push_back(memo_[place]);
    return Step::kGoOn;
  }

  // Names as in Python's pickletools.
  Step Do(unsigned char opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        if (!Has(1)) return Step::kCut;
        return Number(1) <= 5 ? Step::kGoOn : Step::kDamaged;
      case 0x95:  // FRAME: its length is of use to readers of streams only.
        if (!Has(8)) return Step::kCut;
        at_ += 8;
        return Step::kGoOn;
      case '.':  // STOP
        return Step::kStop;
      case '(':  // MARK
        if (marks_.size() >= kMostMarks) return Step::kTooDeep;
        marks_.push_back(stack_.size());
        return Step::kGoOn;
      case 'N':  // NONE
        return Push(document_.AddNull());
      case 0x88:  // NEWTRUE
        return Push(document_.AddBool(true));
      case 0x89:  // NEWFALSE
        return Push(document_.AddBool(false));
      case 'J':  // BININT
        return PushInteger(4, true);
      case 'K':  // BININT1
        return PushInteger(1, false);
      case 'M':  // BININT2
        return PushInteger(2, false);
      case 0x8a:  // LONG1
        return PushLong(1);
      case 0x8b:  // LONG4
        return PushLong(4);
      case 'G':  // BINFLOAT
        return PushReal();
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
        return PushText(1);
      case 'X':  // BINUNICODE
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
        return PushText(4);
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
        return PushText(8);
      default:
        return DoWithValues(opcode);
    }
  }

  // The opcodes that need what earlier ones left.
  Step DoWithValues(unsigned char opcode) {
    switch (opcode) {
      case '}':  // EMPTY_DICT
        return Push(document_.AddDict());
      case ']':  // EMPTY_LIST
      case ')':  // EMPTY_TUPLE
        return Push(document_.AddList());
      case 'd':  // DICT
        return NewFromMark(document_.AddDict());
      case 'l':  // LIST
      case 't':  // TUPLE
        return NewFromMark(document_.AddList());
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return NewFromTop(opcode - 0x84u);
      case 'a':  // APPEND
        return AppendFromTop(1, false);
      case 'e':  // APPENDS
        return AppendFromMark(false);
      case 's':  // SETITEM
        return AppendFromTop(2, true);
      case 'u':  // SETITEMS
        return AppendFromMark(true);
      case 'q':  // BINPUT
        return PutAt(1);
      case 'r':  // LONG_BINPUT
        return PutAt(4);
      case 0x94:  // MEMOIZE
        return Put(memoized_);
      case 'h':  // BINGET
        return GetFrom(1);
      case 'j':  // LONG_BINGET
        return GetFrom(4);
      case '0':  // POP
        if (!Room(1)) return Step::kDamaged;
        stack_.pop_back();
        return Step::kGoOn;
      case '1':  // POP_MARK
        if (marks_.empty()) return Step::kDamaged;
        stack_.resize(marks_.back());
        marks_.pop_back();
        return Step::kGoOn;
      case '2':  // DUP
        if (!Room(1)) return Step::kDamaged;
        stack_.push_back(stack_.back());
        return Step::kGoOn;
      case 'c':   // GLOBAL
      case 0x93:  // STACK_GLOBAL
      case 'R':   // REDUCE
      case 'b':   // BUILD
      case 'i':   // INST
      case 'o':   // OBJ
      case 0x81:  // NEWOBJ
      case 0x92:  // NEWOBJ_EX
      case 'P':   // PERSID
      case 'Q':   // BINPERSID
      case 0x82:  // EXT1
      case 0x83:  // EXT2
      case 0x84:  // EXT4
      case 0x8f:  // EMPTY_SET
      case 0x90:  // ADDITEMS
      case 0x91:  // FROZENSET
      case 0x96:  // BYTEARRAY8
      case 0x97:  // NEXT_BUFFER
      case 0x98:  // READONLY_BUFFER
        return Step::kObject;
      default:
        return Step::kDamaged;
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  Document document_;
  std::vector<ValueId> stack_, memo_;
  std::size_t memoized_ = 0;
  std::vector<std::size_t> marks_;
};

}  // namespace

bool BeginsLikePickle(std::string_view first_bytes) {
  return first_bytes.size() >= 2 && first_bytes[0] == '\x80' && first_bytes[1] >= 2 && first_bytes[1] <= 5;
}

Result<Parsed> ReadPickle(std::string_view bytes) {
  if (!BeginsLikePickle(bytes))
    return Error{ErrorCode::kMalformed, bytes.empty() ? "the file is empty" : "this is no pickle of protocol 2 to 5",
                 "", "take a dump that PyTorch wrote"};
  return Machine(bytes).Run();
}

}  // namespace lockstep::flight_recorder
