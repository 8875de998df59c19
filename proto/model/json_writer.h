// JsonWriter: writes one JSON text (RFC 8259) piece by piece. Keeps commas, quotes and nesting; the caller keeps the
// order of Begin and End.
//
//   JsonWriter json;
//   json.BeginObject().Field("mode", "Alloc").Key("requests").Value(12u).EndObject();
//   json.text();   // {"mode": "Alloc", "requests": 12}
//
// Texts are UTF-8. JSON has no infinity and no NaN: those are null. Not thread-safe.
//
// `Output` takes what is written, by `+=` of characters and string views: std::string, or a file that needs no heap
// memory (allocator/runtime/report_file.h). The writer itself takes none.
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

struct JsonFormat {
  bool indents = false;   // by two, a line for each value; else all on one line
  int digits = 9;         // of numbers with a fraction
  bool replaces = false;  // a byte that is no UTF-8 by U+FFFD; else it becomes \udc80 to \udcff, which Python's
                          // os.fsencode takes back (paths may hold any byte)
};

template <typename Output>
class BasicJsonWriter {
 public:
  // Arguments of the output's constructor.
  template <typename... Arguments>
  explicit BasicJsonWriter(JsonFormat format = {}, Arguments&&... arguments)
      : format_(format), text_(std::forward<Arguments>(arguments)...) {}

  BasicJsonWriter& BeginObject() { return Open('{'); }
  BasicJsonWriter& BeginObject(std::string_view key) { return Key(key).BeginObject(); }
  BasicJsonWriter& EndObject() { return Close('}'); }
  BasicJsonWriter& BeginArray() { return Open('['); }
  BasicJsonWriter& BeginArray(std::string_view key) { return Key(key).BeginArray(); }
  BasicJsonWriter& EndArray() { return Close(']'); }

  BasicJsonWriter& Key(std::string_view key) {
    Separate();
    Text(key);
    text_ += ": ";
    after_key_ = true;
    return *this;
  }
  BasicJsonWriter& Value(std::string_view text) {
    Separate();
    Text(text);
    return *this;
  }
  BasicJsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  BasicJsonWriter& Value(bool value) { return Raw(value ? "true" : "false"); }
  BasicJsonWriter& Value(std::integral auto number) {
    char digits[24];
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), number);
    return Raw({digits, static_cast<std::size_t>(end.ptr - digits)});
  }
  BasicJsonWriter& Value(double number) {
    char digits[40];
    std::snprintf(digits, sizeof(digits), "%.*g", format_.digits, number);
    return Raw(std::isfinite(number) ? digits : "null");
  }
  BasicJsonWriter& Null() { return Raw("null"); }

  BasicJsonWriter& Field(std::string_view key, const auto& value) { return Key(key).Value(value); }
  BasicJsonWriter& Null(std::string_view key) { return Key(key).Null(); }
  // null where the text is empty.
  BasicJsonWriter& TextOrNull(std::string_view key, std::string_view value) {
    return value.empty() ? Null(key) : Field(key, value);
  }

  [[nodiscard]] const Output& text() const { return text_; }
  [[nodiscard]] Output& text() { return text_; }

 private:
  BasicJsonWriter& Open(char bracket) {
    Separate();
    text_ += bracket;
    ++depth_;
    first_ = true;
    return *this;
  }
  BasicJsonWriter& Close(char bracket) {
    --depth_;
    if (!first_) Indent();
    text_ += bracket;
    first_ = false;
    return *this;
  }
  BasicJsonWriter& Raw(std::string_view text) {
    Separate();
    text_ += text;
    return *this;
  }
  void Separate() {
    if (std::exchange(after_key_, false)) return;
    if (!first_) text_ += std::string_view(format_.indents ? "," : ", ");
    first_ = false;
    if (depth_ > 0) Indent();
  }
  void Indent() {
    if (!format_.indents) return;
    text_ += '\n';
    for (int level = 0; level < depth_; ++level) text_ += "  ";
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
  }
  void Character(char c, bool is_utf8) {
    const unsigned code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (code < 0x20 || !is_utf8) {
      char escaped[8];
      const unsigned stray = format_.replaces ? 0xfffd : 0xdc00 + code;
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", is_utf8 ? code : stray);
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

  const JsonFormat format_;
  Output text_;
  int depth_ = 0;
  bool first_ = true;  // of the innermost object or array
  bool after_key_ = false;
};

using JsonWriter = BasicJsonWriter<std::string>;

}  // namespace stalloc
