// JsonWriter of the planner: indented by two or on one line, as Python reads it. See proto/model/json_writer.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/model/json_writer.h"

namespace stalloc::planner {

class JsonWriter : public BasicJsonWriter<std::string> {
 public:
  enum class Style : std::uint8_t { kIndented, kLine };
  explicit JsonWriter(Style style = Style::kIndented)
      : BasicJsonWriter({.indents = style == Style::kIndented, .digits = 10, .replaces = true}) {}

  // Arrays: of values, of lists, of what `number` finds of each row, and of objects whose fields `write` writes.
  template <typename Values>
  void List(std::string_view key, const Values& values) {
    Column(key, values, std::identity());
  }
  template <typename Rows, typename Values>
  void Lists(std::string_view key, const Rows& rows, const Values& values) {
    BeginArray(key);
    for (const auto& row : rows) {
      BeginArray();
      for (const auto& value : values(row)) Value(value);
      EndArray();
    }
    EndArray();
  }
  template <typename Rows, typename Number>
  void Column(std::string_view key, const Rows& rows, const Number& number) {
    BeginArray(key);
    for (const auto& row : rows) Value(number(row));
    EndArray();
  }
  template <typename Rows, typename Write>
  void Objects(std::string_view key, const Rows& rows, const Write& write) {
    BeginArray(key);
    for (const auto& row : rows) {
      BeginObject();
      write(row);
      EndObject();
    }
    EndArray();
  }
  // An object whose fields `write` writes, or null where there is nothing.
  template <typename Found, typename Write>
  void ObjectOrNull(std::string_view key, const std::optional<Found>& found, const Write& write) {
    if (!found.has_value()) {
      Null(key);
      return;
    }
    BeginObject(key);
    write(*found);
    EndObject();
  }
  template <typename Number>
  void NumberOrNull(std::string_view key, const std::optional<Number>& number) {
    number.has_value() ? Field(key, *number) : Null(key);
  }

  // With a newline at the end. REQUIRES: nothing is written afterwards.
  [[nodiscard]] std::string Take() { return std::exchange(text(), {}) + '\n'; }
};

}  // namespace stalloc::planner
