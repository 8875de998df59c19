// A table in plain text: the first column left-aligned, the others right-aligned, two blanks between them.
#pragma once

#include <string>
#include <vector>

namespace stalloc::planner {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  // REQUIRES: as many cells as the header has.
  void AddRow(std::vector<std::string> cells);
  // Header, a rule, rows; each line ends with a newline and has no trailing blanks. Widths count UTF-8 characters.
  [[nodiscard]] std::string Render() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace stalloc::planner
