#include "allocator/backing/chunk_bytes.h"

#include <algorithm>
#include <bit>

#include "allocator/arena/arena.h"

namespace stalloc {

Bytes ChunkBytesOf(Bytes arena_bytes) {
  constexpr Bytes kLeastChunks = 1024;
  return std::min(std::bit_floor(arena_bytes / kLeastChunks), Arena::kChunkBytes);
}

}  // namespace stalloc
