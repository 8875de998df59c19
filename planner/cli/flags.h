// The flags of all commands, declared once; each is defined with the command that gives it its meaning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::int32_t, threads);
ABSL_DECLARE_FLAG(double, time_limit);
ABSL_DECLARE_FLAG(std::uint64_t, seed);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(std::string, beside);
ABSL_DECLARE_FLAG(double, ratio);
