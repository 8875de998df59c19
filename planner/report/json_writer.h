// Writes JSON (RFC 8259) piece by piece, indented by two or on one line.
//
//   JsonWriter json;
//   json.BeginObject().Key("rank").Value(0).Key("peaks").BeginArray().Value(1).EndArray().EndObject();
//   json.Take();
//
// Numbers that JSON cannot express (infinities) become null. Bytes that are no UTF-8 are replaced. The caller keeps the
// nesting right. Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace stalloc::planner {

class JsonWriter {
 public:
  enum class Style : std::uint8_t { kIndented, kLine };
  explicit JsonWriter(Style style = Style::kIndented) : style_(style) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(double number);
  JsonWriter& Value(bool value);
  template <std::integral Integer>
  JsonWriter& Value(Integer number) {
    return Raw(std::to_string(number));
  }
  JsonWriter& Null() { return Raw("null"); }

  // With a newline at the end; the writer is empty afterwards.
  [[nodiscard]] std::string Take();

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Raw(std::string_view text);
  void Separate();
  void Indent();

  Style style_;
  std::string text_;
  int depth_ = 0;
  bool first_ = true;  // of the innermost object or array
  bool after_key_ = false;
};

}  // namespace stalloc::planner
