// Which marks name the same point of a loop. Pure.
#pragma once

#include <cstdint>

#include "proto/model/trace.h"

namespace stalloc {

// Equal for such marks. Compares kind and edge; but for iterations also pass, chunk, index and who placed it (a hook's
// optimizer mark comes at another point than the script's own); for layers and fences also the name. `index`: as if the
// mark's were this one.
[[nodiscard]] inline std::uint64_t MarkKey(const Mark& mark, std::int32_t index) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  const auto add = [&hash](std::uint64_t value, int bytes) {
    for (; bytes > 0; --bytes, value >>= 8) hash = (hash ^ (value & 0xff)) * 0x100000001b3ull;
  };
  add(static_cast<std::uint64_t>(mark.kind), 1);
  add(static_cast<std::uint64_t>(mark.edge), 1);
  if (mark.kind == MarkKind::kIteration) return hash;
  add(mark.automatic ? 1 : 0, 1);
  add(static_cast<std::uint64_t>(mark.pass), 1);
  add(static_cast<std::uint32_t>(mark.chunk), 4);
  add(static_cast<std::uint32_t>(index), 4);
  if (mark.kind == MarkKind::kLayer || mark.kind == MarkKind::kFence) {
    for (const char letter : mark.name) add(static_cast<unsigned char>(letter), 1);
  }
  return hash;
}
[[nodiscard]] inline std::uint64_t MarkKey(const Mark& mark) noexcept { return MarkKey(mark, mark.index); }

}  // namespace stalloc
