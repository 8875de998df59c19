#include "planner/report/json_writer.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"

namespace stalloc::planner {
namespace {

// Length of the valid UTF-8 sequence at `at`, 0 if there is none.
std::size_t SequenceLength(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(at + i) >> 6 != 2) {
      return 0;
    }
  }
  return length;
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceLength(text, i);
    const char c = text[i];
    if (length == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += absl::StrFormat("\\u%04x", static_cast<int>(c));
    } else {
      quoted += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  quoted += '"';
  return quoted;
}

}  // namespace

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  text_ += Quote(key);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) { return Raw(Quote(text)); }

JsonWriter& JsonWriter::Value(double number) {
  return Raw(std::isfinite(number) ? absl::StrFormat("%.10g", number) : "null");
}

JsonWriter& JsonWriter::Value(bool value) { return Raw(value ? "true" : "false"); }

std::string JsonWriter::Take() {
  std::string text = std::exchange(text_, {});
  *this = JsonWriter(style_);
  text += '\n';
  return text;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  ++depth_;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  --depth_;
  if (!first_) {
    Indent();
  }
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view text) {
  Separate();
  text_ += text;
  return *this;
}

void JsonWriter::Separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!first_) {
    text_ += ',';
  }
  first_ = false;
  if (depth_ > 0) {
    Indent();
  }
}

void JsonWriter::Indent() {
  if (style_ == Style::kLine) {
    if (text_.back() == ',') text_ += ' ';
    return;
  }
  text_ += '\n';
  text_.append(2 * static_cast<std::size_t>(depth_), ' ');
}

}  // namespace stalloc::planner
