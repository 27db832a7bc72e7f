#include "ingest/flight_recorder/json_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ingest/flight_recorder/document.h"

namespace lockstep::flight_recorder {
namespace {

using Json = nlohmann::json;

class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Take(parsed_.document.AddNull()); }
  bool boolean(bool value) override { return Take(parsed_.document.AddBool(value)); }
  bool number_integer(std::int64_t value) override { return Take(parsed_.document.AddInteger(value)); }
  bool number_unsigned(std::uint64_t value) override {
    return Take(parsed_.document.AddInteger(value > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return Take(parsed_.document.AddReal(value)); }
  bool string(std::string& text) override { return Take(parsed_.document.AddOwnText(std::move(text))); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(parsed_.document.AddDict()); }
  bool start_array(std::size_t) override { return Open(parsed_.document.AddList()); }
  bool key(std::string& text) override {
    const ValueId key = parsed_.document.AddOwnText(std::move(text));
    return key != kNoValue && parsed_.document.Append(open_.back(), key);
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_at_ = position;
    wrong_ = true;
    return false;
  }

  Parsed parsed_;
  std::size_t error_at_ = 0;
  bool wrong_ = false;  // The text is no JSON; otherwise it is too large or too deep.

 private:
  bool Take(ValueId value) {
    if (value == kNoValue) return false;
    if (!open_.empty()) return parsed_.document.Append(open_.back(), value);
    parsed_.root = value;
    return true;
  }
  bool Open(ValueId value) {
    constexpr std::size_t kDeepest = 1000;
    if (open_.size() >= kDeepest || !Take(value)) return false;
    open_.push_back(value);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::vector<ValueId> open_;
};

}  // namespace

Result<Parsed> ReadJson(std::string_view text) {
  Builder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.parsed_);
  if (builder.wrong_)
    return Error{ErrorCode::kMalformed, "the JSON is damaged or cut off", "byte " + std::to_string(builder.error_at_),
                 "its rank ended while it wrote, or the file is another's: go on without it"};
  return Error{ErrorCode::kMalformed, "the JSON is larger or deeper than any dump", "",
               "take a dump that PyTorch wrote"};
}

}  // namespace lockstep::flight_recorder
