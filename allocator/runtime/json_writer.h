// JsonWriter: builds one JSON text. Keeps commas, quotes and nesting; the caller keeps the order of Begin and End.
//
//   JsonWriter json;
//   json.BeginObject();
//   json.Field("mode", "Alloc");
//   json.Field("requests", 12u);
//   json.EndObject();
//   json.text();   // {"mode": "Alloc", "requests": 12}
//
// Texts are UTF-8. A byte that is not (paths may hold any) becomes \udc80 to \udcff, which Python's os.fsencode takes
// back.
//
// `Output` takes what is written, by `+=` of characters and string views: std::string, or a file that needs no heap
// memory (report_file.h). The writer itself takes none.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
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
    while (!value.empty()) {
      const std::size_t length = Utf8Length(value);
      if (length <= 1) Character(value.front(), length == 1);
      if (length > 1) text_ += value.substr(0, length);
      value.remove_prefix(std::max<std::size_t>(length, 1));
    }
    text_ += '"';
    needs_comma_ = true;
  }
  void Character(char c, bool is_utf8) {
    const unsigned code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (code < 0x20 || !is_utf8) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", is_utf8 ? code : 0xdc00 + code);
      text_ += escaped;
    } else {
      text_ += c;
    }
  }

  // Bytes of the character that the text begins with; 0 where that is none, or is cut short. Surrogates and overlong
  // forms are none (RFC 3629).
  static std::size_t Utf8Length(std::string_view text) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(1) < least || byte(1) > most) return 0;
    for (std::size_t at = 2; at < length; ++at) {
      if ((byte(at) & 0xc0) != 0x80) return 0;
    }
    return length;
  }

  Output text_;
  bool needs_comma_ = false;
};

using JsonWriter = BasicJsonWriter<std::string>;

}  // namespace stalloc
