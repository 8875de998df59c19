// What a fuzz target gives: libFuzzer's entry point, and inputs to start from. A target links either libFuzzer's main()
// or the one of driver.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// 0: the reader accepted the input. -1: it refused it with a proper error. Any other outcome ends the process.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stalloc::fuzz {

// Made by code, the same in every run.
[[nodiscard]] std::vector<std::string> Seeds();

// Ends the process, with the broken rule on standard error, if it does not hold.
void Require(bool holds, std::string_view rule);

// Frames (proto/codec/frame.h) with lengths and checksums made right, so that a mutation reaches what lies behind them.
// A length that passes the end becomes what is there.
[[nodiscard]] std::string WithRightFrames(std::string_view file);

}  // namespace stalloc::fuzz
