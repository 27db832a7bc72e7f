#pragma once
// Plain values as pickle and JSON have them: what both readers of dumps make. Values are numbers of an array, so that a
// value that is used twice is there once, and nothing is as deep as what is read.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::flight_recorder {

using ValueId = std::uint32_t;
inline constexpr ValueId kNoValue = UINT32_MAX;

class Document {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kReal, kText, kList, kDict };
  // A dump of PyTorch's has some hundred thousand; this many take less than a gigabyte.
  static constexpr std::size_t kMostValues = std::size_t{1} << 24;

  // Each returns kNoValue if there are too many values.
  ValueId AddNull() { return Add({.kind = Kind::kNull}); }
  ValueId AddBool(bool value) { return Add({.kind = Kind::kBool, .integer = value}); }
  ValueId AddInteger(std::int64_t value) { return Add({.kind = Kind::kInteger, .integer = value}); }
  ValueId AddReal(double value) { return Add({.kind = Kind::kReal, .real = value}); }
  // The text stays the caller's.
  ValueId AddText(std::string_view text) { return Add({.kind = Kind::kText, .text = text}); }
  ValueId AddOwnText(std::string text) { return AddText(own_.emplace_back(std::move(text))); }
  ValueId AddList() { return AddItems(Kind::kList); }
  ValueId AddDict() { return AddItems(Kind::kDict); }
  // To a list, or key and value by turns to a dict. False: it is neither.
  bool Append(ValueId to, ValueId item) {
    if (!IsList(to) && !IsDict(to)) return false;
    items_[static_cast<std::size_t>(values_[to].integer)].push_back(item);
    return true;
  }

  std::size_t size() const { return values_.size(); }
  bool IsList(ValueId id) const { return Is(id, Kind::kList); }
  bool IsDict(ValueId id) const { return Is(id, Kind::kDict); }
  // Of a list or dict; empty for anything else.
  const std::vector<ValueId>& Items(ValueId id) const {
    static const std::vector<ValueId> none;
    return IsList(id) || IsDict(id) ? items_[static_cast<std::size_t>(values_[id].integer)] : none;
  }
  // The dict's value of this key (the last of several); kNoValue if there is none. Looks at all keys: for small dicts.
  ValueId At(ValueId dict, std::string_view key) const {
    if (!IsDict(dict)) return kNoValue;
    const std::vector<ValueId>& items = Items(dict);
    for (std::size_t i = items.size() & ~std::size_t{1}; i >= 2; i -= 2)
      if (Is(items[i - 2], Kind::kText) && values_[items[i - 2]].text == key) return items[i - 1];
    return kNoValue;
  }
  // Of an integer, a whole number or their text ("42"); else `otherwise`.
  std::int64_t Integer(ValueId id, std::int64_t otherwise) const;
  bool Bool(ValueId id, bool otherwise) const {
    return Is(id, Kind::kBool) || Is(id, Kind::kInteger) ? values_[id].integer != 0 : otherwise;
  }
  std::string_view Text(ValueId id) const { return Is(id, Kind::kText) ? values_[id].text : std::string_view(); }

 private:
  struct Value {
    Kind kind;
    std::int64_t integer = 0;  // Of lists and dicts: their place in items_.
    double real = 0;
    std::string_view text;
  };

  bool Is(ValueId id, Kind kind) const { return id < values_.size() && values_[id].kind == kind; }
  ValueId Add(Value value) {
    if (values_.size() >= kMostValues) return kNoValue;
    values_.push_back(value);
    return static_cast<ValueId>(values_.size() - 1);
  }
  ValueId AddItems(Kind kind) {
    const ValueId id = Add({.kind = kind, .integer = static_cast<std::int64_t>(items_.size())});
    if (id != kNoValue) items_.emplace_back();
    return id;
  }

  std::vector<Value> values_;
  std::vector<std::vector<ValueId>> items_;
  std::deque<std::string> own_;
};

// A document and its outermost value.
struct Parsed {
  Document document;
  ValueId root = kNoValue;
};

}  // namespace lockstep::flight_recorder
