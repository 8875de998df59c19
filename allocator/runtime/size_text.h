// Sizes as people write them: "80G", "1.5 GiB", "85899345920", "0". The grammar is that of stalloc.core.sizes:
// the cases of tests/runtime/sizes.txt hold both.
#pragma once

#include <optional>
#include <string_view>

#include "proto/model/units.h"

namespace stalloc {

inline constexpr std::string_view kSizeAllowed =
    "a size with its unit K, M, G or T (binary), such as 512M, or a whole number of at least 1048576 bytes";

// Bytes; nothing where `text` is no size, or one of 16 EiB or more. Pure.
[[nodiscard]] std::optional<Bytes> ParseSize(std::string_view text) noexcept;

}  // namespace stalloc
