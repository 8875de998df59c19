#include "proto/codec/observed_text.h"

#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace stalloc {
namespace {

using std::to_string;

constexpr std::string_view kTitle = "stalloc-observed 1";
constexpr std::string_view kDevice = "device";
constexpr std::string_view kEntry = "entry";

void AppendNumber(std::uint64_t number, std::string* out) {
  *out += ' ';
  *out += to_string(number);
}

// One line, word after word.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  std::string_view Next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }
  // False where there is no such number.
  template <typename T>
  bool Take(T* number) {
    const std::string_view word = Next();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
    return error == std::errc() && end == word.data() + word.size();
  }
  [[nodiscard]] bool AtEnd() const { return rest_.find_first_not_of(' ') == std::string_view::npos; }

 private:
  std::string_view rest_;
};

class Decoder {
 public:
  Result<Observed> Decode(std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (const std::optional<std::string> problem = Take(number, line); problem.has_value()) {
        return Error{"line " + to_string(number) + ": " + *problem + ", found \"" + std::string(line) + "\""};
      }
      titled_ = true;
    }
    if (!titled_) return Error{"expected \"" + std::string(kTitle) + "\", found an empty file"};
    return std::move(observed_);
  }

 private:
  std::optional<std::string> Take(std::size_t number, std::string_view line) {
    if (number == 1) {
      if (line == kTitle) return std::nullopt;
      return "expected \"" + std::string(kTitle) + "\"";
    }
    Words words(line);
    const std::string_view kind = words.Next();
    if (kind == kDevice) return TakeDevice(words);
    if (kind == kEntry) return TakeEntry(words);
    return "expected \"device\" or \"entry\"";
  }

  std::optional<std::string> TakeDevice(Words& words) {
    ObservedDevice& device = observed_.devices.emplace_back();
    bool good = words.Take(&device.device);
    while (good && !words.AtEnd()) good = words.Take(&device.script_entries.emplace_back());
    if (good && !device.script_entries.empty()) return std::nullopt;
    return "expected a device's index and the numbers of entries of its scripts";
  }

  std::optional<std::string> TakeEntry(Words& words) {
    if (observed_.devices.empty()) return "expected a device before its entries";
    ObservedDevice& device = observed_.devices.back();
    ObservedEntry entry;
    const bool good = words.Take(&entry.script) && words.Take(&entry.entry) && words.Take(&entry.min_bytes) &&
                      words.Take(&entry.max_bytes) && words.Take(&entry.life) && words.Take(&entry.requests) &&
                      words.Take(&entry.misses) && words.AtEnd();
    if (!good) return "expected the entry's seven numbers";
    if (entry.script >= device.script_entries.size() || entry.entry >= device.script_entries[entry.script]) {
      return "expected an entry of the plan";
    }
    const bool sizes = entry.min_bytes > 0 && entry.min_bytes <= entry.max_bytes &&
                       entry.min_bytes % kBlockAlignment == 0 && entry.max_bytes % kBlockAlignment == 0;
    if (!sizes) return "expected 0 < least <= largest size, multiples of 512";
    if (entry.life > std::numeric_limits<std::uint32_t>::max()) return "expected a life below 2^32";
    device.entries.push_back(entry);
    return std::nullopt;
  }

  Observed observed_;
  bool titled_ = false;
};

}  // namespace

std::string EncodeObserved(const Observed& observed) {
  std::string text(kTitle);
  text += '\n';
  for (const ObservedDevice& device : observed.devices) {
    text += std::string(kDevice) + ' ' + to_string(device.device);
    for (const std::uint32_t entries : device.script_entries) AppendNumber(entries, &text);
    text += '\n';
    for (const ObservedEntry& entry : device.entries) {
      text += kEntry;
      for (const std::uint64_t number : {std::uint64_t{entry.script}, std::uint64_t{entry.entry}, entry.min_bytes,
                                         entry.max_bytes, entry.life, entry.requests, entry.misses}) {
        AppendNumber(number, &text);
      }
      text += '\n';
    }
  }
  return text;
}

Result<Observed> DecodeObserved(std::string_view text) { return Decoder().Decode(text); }

}  // namespace stalloc
