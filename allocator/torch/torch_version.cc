#include "allocator/torch/torch_version.h"

#include <string>

namespace stalloc {
namespace {

// "2.11" of "2.11.0+cu130"; empty when there are no two numbers.
std::string_view MinorVersion(std::string_view version) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t major_end = version.find_first_not_of(kDigits);
  if (major_end == 0 || major_end == std::string_view::npos || version[major_end] != '.') return {};
  std::size_t minor_end = version.find_first_not_of(kDigits, major_end + 1);
  if (minor_end == std::string_view::npos) minor_end = version.size();
  if (minor_end == major_end + 1) return {};
  return version.substr(0, minor_end);
}

}  // namespace

// The package looks for these words in the library's bytes (patches/stalloc/core/interface.py): a library for another
// torch may not be loadable at all.
const char* InterfaceClaim() noexcept {
  return "stalloc adapter for torch " STALLOC_TORCH_VERSION ", interface " STALLOC_TORCH_INTERFACE;
}

const char* BuiltForTorch() noexcept { return STALLOC_TORCH_VERSION; }

Status CheckTorchVersion(std::string_view built_for, std::string_view running) {
  const std::string_view expected = MinorVersion(built_for);
  if (!expected.empty() && expected == MinorVersion(running)) return Ok{};
  return Error{"the torch adapter was built for another torch; reinstall stalloc for this one: built for " +
               std::string(built_for) + ", running " + (running.empty() ? "(none given)" : std::string(running))};
}

}  // namespace stalloc
