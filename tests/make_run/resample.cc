#include "make_run/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "make_run/clock.h"

namespace lockstep::make_run {
namespace {

std::int64_t LowerMedian(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// First draws of a rank and of what is common, so that neither depends on how many ranks there are.
constexpr std::uint64_t kCommon = ~std::uint64_t{0}, kOffset = ~std::uint64_t{0};

}  // namespace

// [rank][step][segment], ns.
struct Resample::Raw {
  std::map<std::int64_t, std::map<std::int64_t, std::vector<std::int64_t>>> ranks;
};

Result<Resample> Resample::Parse(std::string_view text, const std::string& file_name) {
  std::map<std::int64_t, Raw> raws;
  std::size_t number = 0, segments = 0;
  const auto fail = [&](std::string what) {
    return Error{ErrorCode::kMalformed, std::move(what), fmt::format("{}:{}", file_name, number),
                 "see tests/make_run/README.md"};
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::int64_t> fields;
    while (true) {
      std::int64_t value = 0;
      const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), value);
      if (error != std::errc() || value < 0) return fail("not a row of whole numbers");
      fields.push_back(value);
      line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
      if (line.empty()) break;
      if (line.front() != ',') return fail("fields are separated by commas");
      line.remove_prefix(1);
    }
    if (fields.size() < 4) return fail("a row is run, rank, step and the work of each segment");
    if (segments == 0) segments = fields.size() - 3;
    if (fields.size() - 3 != segments) return fail("rows differ in their number of segments");
    raws[fields[0]].ranks[fields[1]][fields[2]] = {fields.begin() + 3, fields.end()};
  }
  Resample resample;
  for (const auto& [run, raw] : raws) {
    const std::size_t steps = raw.ranks.begin()->second.size();
    for (const auto& [rank, rows] : raw.ranks)
      if (rows.size() != steps) return fail(fmt::format("run {}: ranks differ in their number of steps", run));
    if (raw.ranks.size() < 2) return fail(fmt::format("run {} has one rank: what is common cannot be told", run));
    resample.Add(raw);
  }
  if (resample.runs_.empty()) return fail("no rows");
  return resample;
}

Result<Resample> Resample::Read(const std::string& file_name) {
  std::ifstream file(file_name);
  if (!file)
    return Error{ErrorCode::kNotFound, "cannot read the measured work", file_name, "see tests/make_run/README.md"};
  std::ostringstream text;
  text << file.rdbuf();
  return Parse(text.str(), file_name);
}

void Resample::Add(const Raw& raw) {
  Run& run = runs_.emplace_back();
  // A rank's own level in a segment is no noise: it goes.
  for (const auto& [rank, rows] : raw.ranks) {
    Factors& factors = run.rank.emplace_back();
    for (const auto& [step, values] : rows) factors.push_back(values);
    for (std::size_t k = 0; k < factors[0].size(); ++k) {
      std::vector<std::int64_t> of_segment;
      for (const auto& step : factors) of_segment.push_back(step[k]);
      const std::int64_t base = std::max<std::int64_t>(1, LowerMedian(std::move(of_segment)));
      for (auto& step : factors) step[k] = step[k] * kMillion / base;
    }
  }
  run.common = run.rank[0];
  for (std::size_t s = 0; s < run.common.size(); ++s)
    for (std::size_t k = 0; k < run.common[s].size(); ++k) {
      std::vector<std::int64_t> of_ranks;
      for (const Factors& rank : run.rank) of_ranks.push_back(rank[s][k]);
      const std::int64_t common = std::max<std::int64_t>(1, LowerMedian(std::move(of_ranks)));
      run.common[s][k] = common;
      for (Factors& rank : run.rank) rank[s][k] = rank[s][k] * kMillion / common;
    }
}

const std::vector<std::int64_t>& Resample::Draw(const Factors& of, std::uint64_t start, std::int64_t in_block) const {
  return of[static_cast<std::size_t>((start + static_cast<std::uint64_t>(in_block)) % of.size())];
}

std::int64_t Resample::FactorPpm(std::uint64_t seed, std::int32_t rank, std::int64_t step, std::size_t nth) const {
  const auto length = static_cast<std::uint64_t>(std::max<std::int64_t>(block, 1));
  const auto draw = [&](std::uint64_t who) -> std::pair<std::uint64_t, std::int64_t> {
    const std::uint64_t at = static_cast<std::uint64_t>(step + 1) + Random(seed ^ 2, who, kOffset, 0) % length;
    return {Random(seed ^ 2, who, at / length, 1), static_cast<std::int64_t>(at % length)};
  };
  const auto [common_draw, common_at] = draw(kCommon);
  const Run& common_run = runs_[common_draw % runs_.size()];
  const auto& common = Draw(common_run.common, common_draw >> 16, common_at);
  const auto [own_draw, own_at] = draw(static_cast<std::uint64_t>(rank));
  const Run& own_run = runs_[own_draw % runs_.size()];
  const auto& own = Draw(own_run.rank[(own_draw >> 8) % own_run.rank.size()], own_draw >> 16, own_at);
  const std::int64_t factor = common[nth % common.size()] * own[nth % own.size()] / kMillion;
  return kMillion + (factor - kMillion) * scale_ppm / kMillion;
}

}  // namespace lockstep::make_run
