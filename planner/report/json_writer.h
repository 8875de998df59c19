// JsonWriter of the planner: indented by two or on one line, as Python reads it. See proto/model/json_writer.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "proto/model/json_writer.h"

namespace stalloc::planner {

class JsonWriter : public BasicJsonWriter<std::string> {
 public:
  enum class Style : std::uint8_t { kIndented, kLine };
  explicit JsonWriter(Style style = Style::kIndented)
      : BasicJsonWriter({.indents = style == Style::kIndented, .digits = 10, .replaces = true}) {}

  // With a newline at the end. REQUIRES: nothing is written afterwards.
  [[nodiscard]] std::string Take() { return std::exchange(text(), {}) + '\n'; }
};

}  // namespace stalloc::planner
