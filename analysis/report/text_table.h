#pragma once
// Lays a table out for a width: what does not fit is left out column by column, and never cut.

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::report {

struct TextColumn {
  std::string head;
  std::size_t width = 0;  // At least, where there is room.
  bool right = true;
  std::size_t lead = 1;  // Spaces before it.
  // At a narrow width columns are left out in the order of these numbers, the smallest first; kAlways: never.
  int keep = kAlways;
  // Its texts are broken at spaces before any other column is left out.
  bool sentence = false;

  static constexpr int kAlways = 1000;
};

class TextTable {
 public:
  // `indent`: spaces before each line.
  TextTable(std::size_t indent, std::vector<TextColumn> columns);
  // A cell for each column. It went through Printed, and may be painted.
  void Add(std::vector<std::string> cells);

  struct Laid {
    std::string head;
    std::vector<std::string> rows;  // A row's lines have \n between them.
    std::string left_out;           // Heads of the columns that do not fit, "idle, last".
  };
  Laid Lay(std::size_t width) const;

 private:
  std::vector<std::size_t> Natural() const;

  std::size_t indent_;
  std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "not shown in 60 columns: idle, last"; "" if all are.
std::string NotShown(const std::string& left_out, std::size_t width);

}  // namespace lockstep::report
