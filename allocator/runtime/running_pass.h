// Which pass the calling thread runs, as far as that is known.
#pragma once

#include <cstdint>

namespace stalloc {

// A backward pass, a forward pass again inside one, or any other.
enum class RunningPass : std::uint8_t { kOther, kBackward, kForwardAgain };

// From any thread, at every request. Null: not known.
using PassHere = RunningPass (*)() noexcept;

[[nodiscard]] inline RunningPass PassOf(PassHere pass_here) noexcept {
  return pass_here != nullptr ? pass_here() : RunningPass::kOther;
}

}  // namespace stalloc
