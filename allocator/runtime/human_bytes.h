// HumanBytes: a size as people read it, without heap memory: HumanBytes(n).text is "34.93 GiB" or "512 B".
#pragma once

#include <cstddef>
#include <cstdio>

#include "proto/model/units.h"

namespace stalloc {

struct HumanBytes {
  explicit HumanBytes(Bytes bytes) noexcept {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1023.995; ++unit) value /= 1024;  // what would be written as 1024.00 has the next unit
    std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  }
  char text[32];
};

}  // namespace stalloc
