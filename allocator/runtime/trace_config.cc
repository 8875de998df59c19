#include "allocator/runtime/trace_config.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace stalloc {
namespace {

// Digits and nothing else.
std::optional<std::uint64_t> Number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What stands before the first `separator`, which goes with it; all where there is none.
std::string_view CutFirst(char separator, std::string_view* rest) {
  const std::size_t at = std::min(rest->find(separator), rest->size());
  const std::string_view first = rest->substr(0, at);
  rest->remove_prefix(std::min(at + 1, rest->size()));
  return first;
}

}  // namespace

std::optional<TraceSteps> ParseTraceSteps(std::string_view text) {
  if (text == "manual") return TraceSteps{.first = 0, .end = std::nullopt, .manual = true};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    const std::optional<std::uint64_t> count = Number(text);
    if (!count.has_value() || *count == 0) return std::nullopt;
    return TraceSteps{.first = 0, .end = count};
  }
  const std::optional<std::uint64_t> first = Number(text.substr(0, colon));
  const std::optional<std::uint64_t> end = Number(text.substr(colon + 1));
  if (!first.has_value() || (!end.has_value() && colon + 1 != text.size())) return std::nullopt;
  if (end.has_value() && *end <= *first) return std::nullopt;
  return TraceSteps{.first = *first, .end = end};
}

std::optional<bool> ListsRank(std::string_view text, std::uint32_t rank) {
  bool listed = false;
  if (text.empty() || text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    std::string_view item = CutFirst(',', &text);
    const bool is_range = item.find('-') != std::string_view::npos;
    const std::optional<std::uint64_t> first = Number(CutFirst('-', &item));
    const std::optional<std::uint64_t> last = is_range ? Number(item) : first;
    if (!first.has_value() || !last.has_value() || *last < *first) return std::nullopt;
    listed = listed || (rank >= *first && rank <= *last);
  }
  return listed;
}

}  // namespace stalloc
