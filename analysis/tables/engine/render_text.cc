#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/core/format.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/table.h"
#include "core/printed.h"

namespace lockstep::tables {
namespace {

constexpr std::size_t kGap = 2;

std::size_t Columns(std::string_view text) { return PrintedColumns(text); }

std::string ThreeDigits(double value) {
  const double size = std::fabs(value);
  if (size >= 999.5) return analysis::Count(std::llround(value));
  std::string text = fmt::format("{:.{}f}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string Integer(const TableColumn& column, std::int64_t value) {
  switch (column.kind) {
    case ColumnKind::kNs:
      return analysis::Duration(value);
    case ColumnKind::kBytes:
      return value < 0 ? "-" + analysis::Bytes(static_cast<std::uint64_t>(-(value + 1)) + 1)
                       : analysis::Bytes(static_cast<std::uint64_t>(value));
    case ColumnKind::kId:
      return std::to_string(value);
    case ColumnKind::kFraction:
      return analysis::Percent(static_cast<double>(value));
    default:
      return column.name == "rank" ? std::to_string(value) : analysis::Count(value);
  }
}

std::string Real(const TableColumn& column, double value) {
  if (!std::isfinite(value)) return "-";
  if (column.kind == ColumnKind::kFraction) return analysis::Percent(value);
  if (column.name.ends_with("bytes_per_s")) return analysis::Bandwidth(value);
  if (column.kind == ColumnKind::kNs) return analysis::MeanDuration(value);
  if (column.kind == ColumnKind::kBytes) return (value < 0 ? "-" : "") + analysis::MeanBytes(std::fabs(value));
  return ThreeDigits(value);
}

std::string Shown(const TableColumn& column, const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return Integer(column, *number);
  if (const auto* real = std::get_if<double>(&cell)) return Real(column, *real);
  if (const auto* text = std::get_if<std::string>(&cell)) return PrintedShort(Printed(*text), rules::kTableTextColumns);
  return "-";
}

bool IsZero(const Cell& cell) {
  const auto* number = std::get_if<std::int64_t>(&cell);
  const auto* real = std::get_if<double>(&cell);
  return std::holds_alternative<std::monostate>(cell) || (number != nullptr && *number == 0) ||
         (real != nullptr && *real == 0);
}

// The unit is written beside each value.
std::string Header(const TableColumn& column) {
  std::string name = column.name;
  for (const std::string_view unit : {"_bytes_per_s", "_ns", "_bytes"})
    if (name.size() > unit.size() && name.ends_with(unit)) {
      name.resize(name.size() - unit.size());
      break;
    }
  if (name == "bytes_per_s") name = "bandwidth";
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

class TextTable {
 public:
  TextTable(const Table& table, bool color, std::size_t width)
      : table_(table), color_(color), width_(width), least_text_(std::min<std::size_t>(30, width / 3)) {}

  std::string Render() {
    Line("", table_.title, "1");
    if (table_.rows.empty()) {
      Line("  ", "no rows", "");
    } else {
      Fill();
      Choose();
      for (std::size_t r = 0; r < cells_.size(); ++r) Row(r);
    }
    if (!table_.notes.empty() || !left_out_.empty()) out_ += '\n';
    for (const std::string& note : table_.notes) Line("  ", note, "2");
    if (!left_out_.empty()) Line("  ", "further columns with --csv and --json: " + left_out_, "2");
    return std::move(out_);
  }

 private:
  // Row 0 is the header.
  void Fill() {
    const std::size_t n = table_.columns.size();
    cells_.assign(1, {});
    natural_.assign(n, 0);
    known_.assign(n, false);
    some_.assign(n, false);
    for (const TableColumn& column : table_.columns) cells_[0].push_back(Header(column));
    for (const auto& row : table_.rows) {
      std::vector<std::string> line;
      for (std::size_t c = 0; c < n; ++c) {
        line.push_back(Shown(table_.columns[c], row[c]));
        if (!std::holds_alternative<std::monostate>(row[c])) known_[c] = true;
        some_[c] = some_[c] || table_.columns[c].kind == ColumnKind::kId || !IsZero(row[c]);
      }
      cells_.push_back(std::move(line));
    }
    for (const auto& line : cells_)
      for (std::size_t c = 0; c < n; ++c) natural_[c] = std::max(natural_[c], Columns(line[c]));
  }

  std::size_t Needed(const std::vector<bool>& shown) const {
    std::size_t sum = 0;
    for (std::size_t c = 0; c < shown.size(); ++c)
      if (shown[c]) sum += kGap + (c == flexible_ ? std::min(natural_[c], least_text_) : natural_[c]);
    return sum;
  }

  // What the table is read for, at every width: what it is sorted by, else the first quantity with a value that does
  // not only tell the rows apart.
  bool Measures(std::size_t c) const {
    const TableColumn& column = table_.columns[c];
    if (!table_.sorted_by.empty()) return column.name == table_.sorted_by && known_[c];
    return known_[c] && some_[c] && !column.detail && column.pool != Pool::kKey && column.kind != ColumnKind::kText &&
           column.kind != ColumnKind::kId && column.kind != ColumnKind::kCount;
  }

  // Chooses columns: those without a value are left out first, then those with nothing but 0. Details are added as long
  // as they fit; the widest text gets the remaining space.
  void Choose() {
    const std::size_t n = table_.columns.size();
    for (std::size_t c = 0; c < n; ++c)
      if (table_.columns[c].kind == ColumnKind::kText && known_[c] && !table_.columns[c].detail &&
          (flexible_ == n_none || natural_[c] > natural_[flexible_]))
        flexible_ = c;
    shown_.assign(n, false);
    for (std::size_t c = 0; c < n; ++c) shown_[c] = known_[c] && some_[c] && !table_.columns[c].detail;
    for (const bool zeros : {false, true})
      for (std::size_t c = 0; c < n; ++c) {
        if (shown_[c] || !known_[c] || some_[c] == zeros) continue;
        std::vector<bool> more = shown_;
        more[c] = true;
        if (Needed(more) <= width_) shown_ = more;
      }
    // The columns stand in the order of their weight.
    std::size_t measure = 1;
    while (measure < n && !Measures(measure)) ++measure;
    if (measure < n) shown_[measure] = true;
    for (std::size_t c = n; c-- > 1 && Needed(shown_) > width_;)
      if (c != flexible_ && c != measure) shown_[c] = false;
    for (std::size_t c = 0; c < n; ++c)
      if (known_[c] && !shown_[c]) left_out_ += (left_out_.empty() ? "" : ", ") + table_.columns[c].name;
    if (flexible_ == n_none) return;
    // Known and no detail: shown.
    const std::size_t others = Needed(shown_) - std::min(natural_[flexible_], least_text_);
    const std::size_t room = width_ > others ? width_ - others : 0;
    natural_[flexible_] = std::min(natural_[flexible_], std::max(room, least_text_));
  }

  void Row(std::size_t r) {
    std::string line;
    for (std::size_t c = 0; c < shown_.size(); ++c) {
      if (!shown_[c]) continue;
      const std::string cell = c == flexible_ ? PrintedShort(cells_[r][c], natural_[c]) : cells_[r][c];
      const std::string pad(natural_[c] - std::min(natural_[c], Columns(cell)), ' ');
      line += std::string(kGap, ' ');
      line += table_.columns[c].kind == ColumnKind::kText ? cell + pad : pad + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    Painted(line, r == 0 ? "2" : "");
  }

  void Painted(const std::string& line, std::string_view code) {
    out_ += color_ && !code.empty() ? fmt::format("\x1b[{}m{}\x1b[0m\n", code, line) : line + "\n";
  }

  // Breaks at spaces so that no line passes the width.
  void Line(std::string_view indent, std::string_view text, std::string_view code) {
    std::string line;
    while (!text.empty()) {
      const std::size_t space = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, space);
      if (!line.empty() && Columns(line) + 1 + Columns(word) > width_) {
        Painted(line, code);
        line.clear();
      }
      line += line.empty() ? std::string(indent) : " ";
      line += PrintedShort(Printed(word), rules::kTableTextColumns);
      text.remove_prefix(std::min(space + 1, text.size()));
    }
    if (!line.empty()) Painted(line, code);
  }

  static constexpr std::size_t n_none = static_cast<std::size_t>(-1);
  const Table& table_;
  const bool color_;
  const std::size_t width_, least_text_;  // least_text_: columns that the widest text keeps.
  std::size_t flexible_ = n_none;
  std::vector<std::vector<std::string>> cells_;
  std::vector<std::size_t> natural_;
  std::vector<bool> known_, some_, shown_;  // some_: has a value that is not 0.
  std::string out_, left_out_;
};

}  // namespace

std::string RenderTableText(const Table& table, bool color, std::size_t width) {
  return TextTable(table, color, width).Render();
}

}  // namespace lockstep::tables
