#include "planner/report/wrap_text.h"

#include <algorithm>

namespace stalloc::planner {

std::string WrapText(std::string_view text) {
  std::string wrapped;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (column > 0 && column + 1 + word.size() > kReportWidth) {
      wrapped += "\n  ";
      column = 2;
    } else if (column > 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
  }
  return wrapped + "\n";
}

}  // namespace stalloc::planner
