// One use of a block by an operation: meaning of the fields in proto/trace.proto, BlockUses.
#pragma once

#include <cstdint>

namespace stalloc {

// How an operation uses a block, as reported to a recorder.
enum class UseKind : std::uint8_t {
  kArgument,   // it has the block from its caller
  kResult,     // it hands the block to its caller, and may have allocated it
  kLayerInput  // no operation, but a layer of the model was called with it
};

struct BlockUse {
  std::uint64_t allocation = 0;
  std::uint64_t event = 0;      // so many rows of the file came before
  std::uint32_t operation = 0;  // index into Trace::texts

  bool operator==(const BlockUse&) const = default;
};

}  // namespace stalloc
