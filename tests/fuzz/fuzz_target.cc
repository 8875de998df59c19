#include "tests/fuzz/fuzz_target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "proto/codec/frame.h"

namespace stalloc::fuzz {

void Require(bool holds, std::string_view rule) {
  if (holds) return;
  std::fprintf(stderr, "broken rule: %.*s\n", static_cast<int>(rule.size()), rule.data());
  std::abort();
}

std::string WithRightFrames(std::string_view file) {
  std::string fixed(file.substr(0, kMagicBytes));
  std::string_view rest = file.substr(fixed.size());
  while (rest.size() > kFrameHeaderBytes) {
    const std::size_t length = DecodeFrameHeader(rest.data()).length;
    rest.remove_prefix(kFrameHeaderBytes);
    const std::string_view payload = rest.substr(0, std::clamp<std::size_t>(length, 1, rest.size()));
    const std::size_t start = BeginFrame(&fixed);
    fixed += payload;
    FinishFrame(start, &fixed);
    rest.remove_prefix(payload.size());
  }
  return fixed.append(rest);
}

}  // namespace stalloc::fuzz
