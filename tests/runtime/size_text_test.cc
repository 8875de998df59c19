#include "allocator/runtime/size_text.h"

#include <fstream>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace stalloc {
namespace {

// The table that tests/python/test_sizes.py holds Python's reader to.
TEST(SizeTextTest, ReadsWhatTheSharedTableSays) {
  std::ifstream cases(STALLOC_SIZE_CASES);
  int read = 0;
  for (std::string line; std::getline(cases, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::size_t quote = line.rfind('"');
    const std::string text = line.substr(1, quote - 1), expected = line.substr(quote + 2);
    const std::optional<Bytes> size = ParseSize(text);
    EXPECT_EQ(size.has_value() ? std::to_string(*size) : "no size", expected) << "\"" << text << "\"";
    ++read;
  }
  EXPECT_GE(read, 50) << STALLOC_SIZE_CASES;
}

}  // namespace
}  // namespace stalloc
