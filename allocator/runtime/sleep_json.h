// What a sleep or a wake did, as JSON: docs/sleep.md has the keys.
#pragma once

#include <span>
#include <string>

#include "allocator/runtime/device_sleep.h"

namespace stalloc {

[[nodiscard]] std::string SleepToJson(std::span<const SleepFigures> devices);

}  // namespace stalloc
