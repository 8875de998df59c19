#include "allocator/runtime/size_text.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <system_error>

namespace stalloc {
namespace {

constexpr Bytes kLeastPlain = 1 << 20;  // less was meant in another unit
constexpr std::size_t kMostDigits = 6;  // after the point: with the largest unit they still fit into 64 bits

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct Decimal {
  Bytes whole = 0, fraction = 0, scale = 1;  // whole + fraction / scale
};

std::optional<Decimal> TakeNumber(std::string_view* text) {
  Decimal number;
  const char* const last = text->data() + text->size();
  const auto [end, code] = std::from_chars(text->data(), last, number.whole);
  if (code != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  if (text->empty() || text->front() != '.') return number;
  text->remove_prefix(1);
  const auto digits = static_cast<std::size_t>(std::find_if_not(text->begin(), text->end(), IsDigit) - text->begin());
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  for (const char digit : text->substr(0, digits)) {
    number.fraction = 10 * number.fraction + static_cast<Bytes>(digit - '0');
    number.scale *= 10;
  }
  text->remove_prefix(digits);
  return number;
}

// `lower`: in lower case.
bool Is(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), [](char a, char b) { return Lower(a) == b; });
}

// The shift of a unit ("K", "MiB", " gb"...; 0 of "B"); nothing when it is none.
std::optional<int> UnitShift(std::string_view unit) {
  constexpr std::string_view kLetters = "kmgt";
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) return std::nullopt;
  if (Is(unit, "b")) return 0;
  const std::size_t letter = kLetters.find(Lower(unit.front()));
  const std::string_view rest = unit.substr(1);
  if (letter == std::string_view::npos || !(rest.empty() || Is(rest, "b") || Is(rest, "ib"))) return std::nullopt;
  return static_cast<int>(10 * (letter + 1));
}

}  // namespace

std::optional<Bytes> ParseSize(std::string_view text) noexcept {
  const std::optional<Decimal> number = TakeNumber(&text);
  if (!number.has_value()) return std::nullopt;
  if (text.empty()) {
    const bool is_plain = number->scale == 1 && (number->whole == 0 || number->whole >= kLeastPlain);
    return is_plain ? std::optional(number->whole) : std::nullopt;
  }
  const std::optional<int> shift = UnitShift(text);
  if (!shift.has_value() || (*shift == 0 && number->scale != 1)) return std::nullopt;
  if (number->whole > (std::numeric_limits<Bytes>::max() >> *shift)) return std::nullopt;
  return (number->whole << *shift) + (number->fraction << *shift) / number->scale;
}

}  // namespace stalloc
