// JsonWriter: builds one JSON text. Keeps commas, quotes and nesting; the caller keeps the order of Begin and End.
//
//   JsonWriter json;
//   json.BeginObject();
//   json.Field("mode", "Alloc");
//   json.Field("requests", 12u);
//   json.EndObject();
//   json.text();   // {"mode": "Alloc", "requests": 12}
//
// `Output` takes what is written, by `+=` of characters and string views: std::string, or a file that needs no heap
// memory (report_file.h). The writer itself takes none.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace stalloc {

template <typename Output>
class BasicJsonWriter {
 public:
  // Arguments of the output's constructor.
  template <typename... Arguments>
  explicit BasicJsonWriter(Arguments&&... arguments) : text_(std::forward<Arguments>(arguments)...) {}

  void BeginObject() { Open('{'); }
  void BeginObject(std::string_view key) { Key(key), Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray(std::string_view key) { Key(key), Open('['); }
  void BeginElements() { Open('['); }  // an array inside an array
  void EndArray() { Close(']'); }

  void Field(std::string_view key, std::string_view value) { Key(key), Text(value); }
  void Field(std::string_view key, const char* value) { Field(key, std::string_view(value)); }
  void Field(std::string_view key, bool value) { Key(key), Put(value ? "true" : "false"); }
  void Field(std::string_view key, std::integral auto value) { Key(key), Number(value); }
  // JSON has no infinity and no NaN: those are null.
  void Field(std::string_view key, double value) {
    char digits[40];
    std::snprintf(digits, sizeof(digits), "%.9g", value);
    Key(key), Put(std::isfinite(value) ? digits : "null");
  }
  void Null(std::string_view key) { Key(key), Put("null"); }
  // null where the text is empty.
  void TextOrNull(std::string_view key, std::string_view value) { value.empty() ? Null(key) : Field(key, value); }

  // The same without a key, for elements of arrays.
  void Element(std::string_view value) { Separate(), Text(value); }
  void Element(std::integral auto value) { Separate(), Number(value); }

  [[nodiscard]] const Output& text() const { return text_; }
  [[nodiscard]] Output& text() { return text_; }

 private:
  void Separate() {
    if (needs_comma_) text_ += ", ";
    needs_comma_ = false;
  }
  void Open(char bracket) {
    Separate();
    text_ += bracket;
  }
  void Close(char bracket) {
    text_ += bracket;
    needs_comma_ = true;
  }
  void Number(std::integral auto value) {
    char digits[24];
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
    Put({digits, static_cast<std::size_t>(end.ptr - digits)});
  }
  void Put(std::string_view raw) {
    text_ += raw;
    needs_comma_ = true;
  }
  void Key(std::string_view key) {
    Separate();
    Text(key);
    text_ += ": ";
    needs_comma_ = false;
  }
  void Text(std::string_view value) {
    text_ += '"';
    for (const char c : value) Character(c);
    text_ += '"';
    needs_comma_ = true;
  }
  void Character(char c) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      text_ += escaped;
    } else {
      text_ += c;
    }
  }

  Output text_;
  bool needs_comma_ = false;
};

using JsonWriter = BasicJsonWriter<std::string>;

}  // namespace stalloc
