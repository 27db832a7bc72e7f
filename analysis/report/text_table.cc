#include "analysis/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/wrap.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kLeastSentence = 28;

std::string Filled(const std::string& text, std::size_t columns, bool right) {
  const std::size_t have = PaintedColumns(text);
  if (have >= columns) return text;
  return right ? std::string(columns - have, ' ') + text : text + std::string(columns - have, ' ');
}

std::vector<std::string> Broken(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines;
  for (WrappedLine& line : WrapLines("", "", text, columns)) lines.push_back(std::move(line.text));
  return lines;
}

}  // namespace

TextTable::TextTable(std::size_t indent, std::vector<TextColumn> columns)
    : indent_(indent), columns_(std::move(columns)) {}

void TextTable::Add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::Natural() const {
  std::vector<std::size_t> natural;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    natural.push_back(PaintedColumns(columns_[c].head));
    for (const auto& row : rows_) natural[c] = std::max(natural[c], PaintedColumns(row[c]));
  }
  return natural;
}

TextTable::Laid TextTable::Lay(std::size_t width) const {
  const std::vector<std::size_t> natural = Natural();
  std::vector<std::size_t> roomy = natural, widths = natural;
  for (std::size_t c = 0; c < columns_.size(); ++c) roomy[c] = std::max(columns_[c].width, natural[c]);
  std::vector<bool> shown(columns_.size(), true);
  const auto needed = [&](const std::vector<std::size_t>& of) {
    std::size_t sum = indent_;
    // Nothing is filled up behind the last column.
    std::size_t behind = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (!shown[c]) continue;
      sum += columns_[c].lead + of[c];
      behind = columns_[c].right ? 0 : of[c] - std::min(of[c], natural[c]);
    }
    return sum - behind;
  };
  // The sentence takes what the others leave.
  const auto squeeze = [&](std::size_t least) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (!columns_[c].sentence) continue;
      widths[c] = natural[c];
      const std::size_t all = needed(widths);
      if (all > width)
        widths[c] = std::max(std::min(natural[c], least), natural[c] - std::min(natural[c], all - width));
    }
  };
  Laid laid;
  for (;;) {
    if (needed(roomy) <= width) {
      widths = roomy;
      break;
    }
    widths = natural;
    squeeze(kLeastSentence);
    if (needed(widths) <= width) break;
    std::size_t least = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (shown[c] && columns_[c].keep < TextColumn::kAlways &&
          (least == columns_.size() || columns_[c].keep < columns_[least].keep))
        least = c;
    if (least == columns_.size()) {
      squeeze(1);
      break;
    }
    shown[least] = false;
  }
  for (std::size_t c = 0; c < columns_.size(); ++c)
    if (!shown[c] && !columns_[c].head.empty()) laid.left_out += (laid.left_out.empty() ? "" : ", ") + columns_[c].head;
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> parts;
    std::size_t height = 1;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      parts.push_back(columns_[c].sentence && PaintedColumns(cells[c]) > widths[c]
                          ? Broken(cells[c], widths[c])
                          : std::vector<std::string>{cells[c]});
      if (shown[c]) height = std::max(height, parts[c].size());
    }
    std::string lines;
    for (std::size_t h = 0; h < height; ++h) {
      std::string line(indent_, ' ');
      for (std::size_t c = 0; c < columns_.size(); ++c)
        if (shown[c])
          line += std::string(columns_[c].lead, ' ') +
                  Filled(h < parts[c].size() ? parts[c][h] : std::string(), widths[c], columns_[c].right);
      line.erase(line.find_last_not_of(' ') + 1);
      lines += (h == 0 ? "" : "\n") + line;
    }
    return lines;
  };
  std::vector<std::string> heads;
  for (const TextColumn& column : columns_) heads.push_back(column.head);
  laid.head = line_of(heads);
  for (const auto& row : rows_) laid.rows.push_back(line_of(row));
  return laid;
}

std::string NotShown(const std::string& left_out, std::size_t width) {
  return left_out.empty() ? std::string() : fmt::format("not shown in {} columns: {}", width, left_out);
}

}  // namespace lockstep::report
