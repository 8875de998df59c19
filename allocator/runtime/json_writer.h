// JsonWriter: builds one JSON text. Keeps commas, quotes and nesting; the caller keeps the order of Begin and End.
//
//   JsonWriter json;
//   json.BeginObject();
//   json.Field("mode", "Alloc");
//   json.Field("requests", 12u);
//   json.EndObject();
//   json.text();   // {"mode": "Alloc", "requests": 12}
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace stalloc {

class JsonWriter {
 public:
  void BeginObject() { Open('{'); }
  void BeginObject(std::string_view key) { Key(key), Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray(std::string_view key) { Key(key), Open('['); }
  void EndArray() { Close(']'); }

  void Field(std::string_view key, std::string_view value) { Key(key), Text(value); }
  void Field(std::string_view key, const char* value) { Field(key, std::string_view(value)); }
  void Field(std::string_view key, bool value) { Key(key), Put(value ? "true" : "false"); }
  void Field(std::string_view key, std::integral auto value) { Key(key), Put(std::to_string(value)); }
  // JSON has no infinity and no NaN: those are null.
  void Field(std::string_view key, double value) {
    char digits[40];
    std::snprintf(digits, sizeof(digits), "%.9g", value);
    Key(key), Put(std::isfinite(value) ? digits : "null");
  }
  void Null(std::string_view key) { Key(key), Put("null"); }
  // null where the text is empty.
  void TextOrNull(std::string_view key, std::string_view value) { value.empty() ? Null(key) : Field(key, value); }

  [[nodiscard]] const std::string& text() const { return text_; }

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

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace stalloc
